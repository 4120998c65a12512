/* dataset.h: what the loader asks of a data set beyond the public struct. */
#ifndef LS_DATA_DATASET_H
#define LS_DATA_DATASET_H

#include <lockstep/data.h>

/* Checks the shape fields and yields the bytes of one sample's x and y. Errors: LS_ERR_ARGUMENT names the field. */
ls_status data_sample_bytes(const ls_dataset *dataset, size_t *x_bytes, size_t *y_bytes);

#endif
