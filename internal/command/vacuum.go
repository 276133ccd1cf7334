package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/patchlog-dev/patchlog/internal/database"
	"github.com/patchlog-dev/patchlog/internal/present"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/backend"
)

func (a *app) vacuumCommand() *cobra.Command {
	cmd := command(`vacuum
Free the space of deleted and erased records

The database is written to a new file, which then replaces the old file. Until then, both files need space. If this is
interrupted, the old file stays. 'patchlog stats' shows how many bytes are free.

$ patchlog vacuum`)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withFile(cmd.Context(), database.Writing, func(s *store.Store) error { return a.vacuum(cmd.Context(), s) })
	}
	return cmd
}

func (a *app) vacuum(ctx context.Context, s *store.Store) error {
	before, err := s.Vacuum(ctx, store.VacuumOptions{DryRun: true})
	if err != nil {
		return err
	}
	after, err := s.Vacuum(ctx, store.VacuumOptions{})
	if err != nil {
		return err
	}
	return a.receipt(struct {
		Before backend.Space `json:"before"`
		After  backend.Space `json:"after"`
	}{before, after}, "%s: %s bytes, before %s", a.db, present.Grouped(after.File), present.Grouped(before.File))
}

// space reports the size of the database file.
func (a *app) space(ctx context.Context, s *store.Store) error {
	space, err := s.Vacuum(ctx, store.VacuumOptions{DryRun: true})
	if err != nil {
		return err
	}
	if a.json {
		return a.out.Document(space)
	}
	return a.out.Rows([]present.Row{
		{Name: "file", Text: present.Grouped(space.File) + " bytes"},
		{Name: "  live", Text: present.Grouped(space.Live) + " bytes"},
		{Name: "  free", Text: present.Grouped(space.Free) + " bytes"},
	})
}
