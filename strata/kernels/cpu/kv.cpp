#include "kv.h"

#include "rows.h"

namespace strata {

void KvForm::put_key(const float* key, uint8_t* unit, int together, int place) const {
  row_kernels().narrow(type, key, dim, unit + place * element(), together,
                       unit + scales(together) + 2 * place, together);
}

void KvForm::put_value(const float* value, uint8_t* unit, int together, int place) const {
  row_kernels().narrow(type, value, dim, unit + static_cast<size_t>(place) * dim * element(), 1,
                       unit + scales(together) + 2 * place, together);
}

}  // namespace strata
