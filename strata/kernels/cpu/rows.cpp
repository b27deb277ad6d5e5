#include "rows.h"

#include <cstdlib>

#include "isa.h"

namespace strata {

namespace portable {
extern const RowKernels row_kernels;
}
#ifdef STRATA_BUILT_avx2
namespace avx2 {
extern const RowKernels row_kernels;
}
#endif
#ifdef STRATA_BUILT_avx512
namespace avx512 {
extern const RowKernels row_kernels;
}
#endif
#ifdef STRATA_BUILT_neon
namespace neon {
extern const RowKernels row_kernels;
}
#endif

const RowKernels& row_kernels() {
  switch (active_isa()) {
    case Isa::portable:
      return portable::row_kernels;
#ifdef STRATA_BUILT_avx2
    case Isa::avx2:
      return avx2::row_kernels;
#endif
#ifdef STRATA_BUILT_avx512
    case Isa::avx512:
      return avx512::row_kernels;
#endif
#ifdef STRATA_BUILT_neon
    case Isa::neon:
      return neon::row_kernels;
#endif
    default:
      std::abort();  // set_active_isa refuses what is not built
  }
}

}  // namespace strata
