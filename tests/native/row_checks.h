// The functions of RowKernels under one instruction set against the portable ones.
#pragma once
#include "isa.h"

// How many of them differ by more than rounding errors; prints a line for each.
int check_rows(strata::Isa isa);
