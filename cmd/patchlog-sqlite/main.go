// Command patchlog-sqlite is the command patchlog with a driver for SQLite, so it can also import the SQLite databases
// of ADK's services. The driver is larger than all other dependencies of patchlog together, so the command patchlog
// does not include it.
package main

import (
	"os"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/patchlog-dev/patchlog/internal/command"
)

func main() { os.Exit(command.Main()) }
