# Writes version.cpp from version.cpp.in, on every build; the file changes only when its text does.
# Needs: SOURCE_DIR (of the project), INPUT, OUTPUT, and VERSION, COMPILER, FLAGS, BUILD_TYPE, SYSTEM, LIBRARIES.
set(COMMIT "")
find_program(GIT git)
if(GIT AND EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT} describe --always --dirty
    WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE result ERROR_QUIET)
  if(NOT result EQUAL 0)
    set(COMMIT "")
  endif()
endif()
configure_file(${INPUT} ${OUTPUT} @ONLY)
