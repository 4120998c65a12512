/* rendezvous.h: who this process is among the ranks of its job, and the store through which it meets the others:
 * both from the environment that whoever started it has left. The first of these that is complete counts:
 *
 *   lockstep run   RANK, WORLD_SIZE, and the launcher's own store
 *   torchrun, or   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: rank 0 serves the store there. Where torchrun's agent
 *   by hand        holds that port itself (TORCHELASTIC_USE_AGENT_STORE=True), ports are derived (store/tcp.h).
 *   Slurm's srun   SLURM_PROCID, SLURM_NTASKS: on the first host of SLURM_STEP_NODELIST, on ports derived from job and
 *                  step
 *   Open MPI       OMPI_COMM_WORLD_RANK, _SIZE: on one host over loopback, on several at MASTER_ADDR
 *   MPICH's Hydra  PMI_RANK, PMI_SIZE: the same
 *
 * Where a launcher brings PMIx and ranks are on several hosts, rank 0 says through it where its store is, and the
 * job's secret with it (store/announcement.h). MASTER_ADDR and MASTER_PORT, where both are set, are used with Slurm
 * and MPI too. Ports that are derived come from the job's identity, below the range that the kernel gives to others. */
#ifndef LS_STORE_RENDEZVOUS_H
#define LS_STORE_RENDEZVOUS_H

#include "store/handshake.h"
#include "store/store.h"

enum { STORE_DERIVED_PORTS = 8, STORE_HOST_NAME_BYTES = 256, STORE_MOST_RANKS = 4096 };

typedef struct store_rendezvous {
    int rank, world_size;
    int hosts;                         /* of the job: 1, 2 for several, 0 where nobody tells */
    bool is_launched;                  /* by `lockstep run`: its store is there */
    bool is_mpi;                       /* by the launcher of an MPI */
    bool is_slurm;                     /* by srun, which starts programs of MPI too */
    bool asks_pmix;                    /* rank 0 tells where it is: `host` and `ports` are not known before */
    const char *rank_name, *size_name; /* the variables that told, for messages */
    const char *backend;               /* the caller's word: what it will open over the store; NULL: it sees there */
    char host[STORE_HOST_NAME_BYTES];
    int ports[STORE_DERIVED_PORTS];
    int port_count;
    char job[STORE_JOB_BYTES];
} store_rendezvous;

/* Reads who this process is; without anything in the environment a world of one. Connects to nobody.
 * Errors: LS_ERR_ENVIRONMENT names variables and values: a set that is not complete, a rank out of range, ... */
ls_status store_rendezvous_read(store_rendezvous *found);

/* For a world of several: finds where rank 0 serves the store.
 * Errors: LS_ERR_ENVIRONMENT names what is missing. */
ls_status store_rendezvous_locate(store_rendezvous *found);

/* Opens the store (rank 0 begins to serve it) and meets all other ranks there: each rank once, all with one world size
 * and one backend.
 * timeout_ms   0: 30 minutes; LS_FOREVER
 * Errors: LS_ERR_ENVIRONMENT when two processes are one rank, when world sizes or backends differ, ...: on all ranks
 * alike; LS_ERR_TIMEOUT names who is missing; those of ls_store_open_tcp. */
ls_status store_rendezvous_meet(const store_rendezvous *found, int64_t timeout_ms, ls_store **store);

#endif
