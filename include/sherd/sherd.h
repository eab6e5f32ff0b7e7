#pragma once
// Everything: what a program includes that does not want to choose.

#include "sherd/blocking.h"
#include "sherd/box.h"
#include "sherd/collectives.h"
#include "sherd/device_mesh.h"
#include "sherd/dtensor.h"
#include "sherd/error.h"
#include "sherd/explain.h"
#include "sherd/group.h"
#include "sherd/layout.h"
#include "sherd/mesh.h"
#include "sherd/parallel.h"
#include "sherd/picture.h"
#include "sherd/placement.h"
#include "sherd/shared_memory.h"
#include "sherd/world.h"
