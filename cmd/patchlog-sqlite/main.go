// Command patchlog-sqlite is the command patchlog with a driver for SQLite, so that migrate
// also reads the SQLite databases of ADK's services. It is a command of its own because the
// driver is larger than everything else that patchlog downloads and compiles.
package main

import (
	"os"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/patchlog-dev/patchlog/internal/command"
)

func main() { os.Exit(command.Main()) }
