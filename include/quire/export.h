/* QUIRE_API marks what the shared library exports. Everything else in it is hidden. */
#ifndef QUIRE_EXPORT_H
#define QUIRE_EXPORT_H

#define QUIRE_API __attribute__((visibility("default")))

#endif
