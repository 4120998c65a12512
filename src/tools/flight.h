/* flight.h: the ranks' flight recorders, merged. */
#ifndef LS_TOOLS_FLIGHT_H
#define LS_TOOLS_FLIGHT_H

/* Prints, for each group that has files in `folder`, where it is stuck and who is missing. Returns the exit code. */
int doctor_flight(const char *folder);

#endif
