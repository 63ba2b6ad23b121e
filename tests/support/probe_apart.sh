#!/bin/sh
# In the place of clef-probe (CLEF_PROBE): every driver does everything, but no two devices share an OpenCL context.  So copies
# between parts of one device go through the host, as those between platforms.
[ "$1" = events ] && [ $# -gt 3 ] && exit 1
for line in listed ready half right; do
    echo $line >&3
done
