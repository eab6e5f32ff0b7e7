#pragma once
// The demo's report as a page of HTML that needs no other file.

#include <string>

#include "report.h"

std::string make_page(const Report& report);
