/* fault.c: the tests' hooks; NULL in every program that is not a test. */
#include "base/fault.h"

const ls_fault_hooks *ls_fault_hooks_installed;
