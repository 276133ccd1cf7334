// Command patchlog looks into and changes session logs: it imports, exports and copies them,
// shows what a model sees of them and what was logged, and patches them.
//
// It keeps them in a file. The command github.com/patchlog-dev/patchlog/store/pg/cmd/patchlog
// is the same with PostgreSQL.
//
// Run "patchlog help" for its commands.
package main

import (
	"os"

	"github.com/patchlog-dev/patchlog/cmd/patchlog/command"
)

func main() { os.Exit(command.Main(command.Options{})) }
