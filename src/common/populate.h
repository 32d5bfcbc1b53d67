// Pages before they are touched.
#ifndef PHALANX_COMMON_POPULATE_H_
#define PHALANX_COMMON_POPULATE_H_

#include <cstdint>

namespace phalanx {

// Fills the page tables of a writable shared mapping, and makes the pages of which there are none
// yet: zeroing them is most of the first Put of a large object. Much of it is shared out among up
// to four threads that end with the call. What the system refuses (before Linux 5.14 all of it)
// comes page by page when it is written.
//
// Any thread may call it. `begin` is at the start of a page.
void Populate(char* begin, uint64_t bytes);

// Whether this system knows how to.
bool CanPopulate();

}  // namespace phalanx

#endif  // PHALANX_COMMON_POPULATE_H_
