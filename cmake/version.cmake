# Writes OUTPUT from src/base/version.h.in: VERSION, and the commit of SOURCE_DIR.
set(COMMIT unknown)
if(EXISTS ${SOURCE_DIR}/.git)
  find_package(Git QUIET)
  if(GIT_FOUND)
    execute_process(
      COMMAND ${GIT_EXECUTABLE} describe --always --dirty --abbrev=12 --exclude=*
      WORKING_DIRECTORY ${SOURCE_DIR}
      OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE
      RESULT_VARIABLE failed ERROR_QUIET)
    if(NOT failed)
      set(COMMIT ${described})
    endif()
  endif()
endif()
configure_file(${SOURCE_DIR}/src/base/version.h.in ${OUTPUT} @ONLY)
