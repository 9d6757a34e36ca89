#include <ddl/ddl.h>

int main(void) {
  float value = 2;
  if (ddl_init(NULL) != DDL_OK || ddl_all_reduce(&value, 1, DDL_F32, DDL_SUM) != DDL_OK) return 1;
  return ddl_finalize() == DDL_OK && value == 2 ? 0 : 1;
}
