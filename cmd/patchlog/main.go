// Command patchlog looks into and changes session logs: it imports, exports and copies them,
// shows what a model sees of them and what was logged, and patches them. A database is a file
// or a schema on PostgreSQL.
//
// Run "patchlog help" for its commands.
package main

import (
	"os"

	"github.com/patchlog-dev/patchlog/internal/command"
)

func main() { os.Exit(command.Main()) }
