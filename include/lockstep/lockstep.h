/* lockstep/lockstep.h: everything. Each room's header may be included alone. */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include <lockstep/autograd.h>
#include <lockstep/base.h>
#include <lockstep/checkpoint.h>
#include <lockstep/data.h>
#include <lockstep/ddp.h>
#include <lockstep/group.h>
#include <lockstep/nn.h>
#include <lockstep/optim.h>
#include <lockstep/store.h>
#include <lockstep/tensor.h>
#include <lockstep/trace.h>

#endif
