/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The qobs authors */

#include "files/bus_errors.h"
#include "files/status.h"

int qobs_checkpoint_handle_bus_errors(qobs_error *error)
{
    struct fail f = {.message = ""};
    return give_error(error, bus_errors_handle(&f), &f);
}
