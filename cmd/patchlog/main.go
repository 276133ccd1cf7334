// Command patchlog imports, shows, patches, compacts and exports the session logs of LLM agents. The logs are in a database:
// a file, or a schema on PostgreSQL.
//
// Run "patchlog help" for a list of the commands.
package main

import (
	"os"

	"github.com/patchlog-dev/patchlog/internal/command"
)

func main() { os.Exit(command.Main()) }
