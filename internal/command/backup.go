package command

import (
	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
)

func (a *app) backupCommand() *cobra.Command {
	cmd := command(`backup FILE
Save the database to a file

FILE must not exist. It appears when the copy is complete and verified. --db accepts it as a database. A damaged database
is not copied.

If another program has the database open, only that program can save it (Store.Backup in Go). A plain copy of the file is
likely to be damaged.

$ patchlog backup /backups/patchlog.db`)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withFile(cmd.Context(), database.Reading, func(s *store.Store) error {
			sessions, bytes, err := database.Backup(cmd.Context(), s, args[0], a.options)
			if err != nil {
				return err
			}
			return a.receipt(struct {
				File     string `json:"file"`
				Sessions int    `json:"sessions"`
				Bytes    int64  `json:"bytes"`
			}{args[0], sessions, bytes}, "%s: %s, %s bytes", args[0], present.Counted(sessions, "session"), present.Grouped(bytes))
		})
	}
	return cmd
}
