// Creates the pages of shared memory before they are written.
#ifndef PHALANX_COMMON_IO_POPULATE_H_
#define PHALANX_COMMON_IO_POPULATE_H_

#include <cstdint>

namespace phalanx {

// Fills the page tables of a writable shared mapping and allocates the missing pages: zeroing them
// is most of the cost of the first Put of a large object. A large range is divided among up to four
// threads, which end before Populate returns. If the kernel refuses (always before Linux 5.14),
// pages are allocated one by one when they are written.
//
// Any thread may call it. REQUIRES: `begin` is the start of a page.
void Populate(char* begin, uint64_t bytes);

// True if the kernel supports Populate.
bool CanPopulate();

}  // namespace phalanx

#endif  // PHALANX_COMMON_IO_POPULATE_H_
