/* samples.h: what a sample in a header's comment or a page may presume without declaring it. The names are those of the
 * program in the README; a sample that is no whole program is compiled as the body of a function below this. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>

extern ls_store *store;
extern ls_group *group;
extern ls_module *net;
extern ls_ddp *ddp;
extern ls_optim *sgd;
extern ls_loader *loader;
extern ls_batch batch;
extern ls_reducer *reducer;
extern ls_tensor *x, *y, *loss;
extern float *data;
extern int rank, last, epoch;

/* The user's own work. */
void compute_gradient(int index);
