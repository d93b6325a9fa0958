#include <quire/quire.h>
#include <stdio.h>

int main(void) {
  printf("C: quire %s\n", quire_version_string());
  return 0;
}
