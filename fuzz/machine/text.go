package machine

import (
	"bytes"
	"context"

	"pgregory.net/rapid"

	"github.com/patchlog-dev/patchlog/fuzz"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

// exportImport exports the session and imports it elsewhere, twice: the views are
// equal, and the second time adds nothing. Go types do not survive the text form, so
// the copy is compared with a model fed by the text.
func (m *machine) exportImport(t *rapid.T) {
	ctx := context.Background()
	var exports [2]bytes.Buffer
	for i, s := range m.stores {
		if err := s.Export(ctx, m.key, &exports[i], store.ExportOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	text := exports[0].Bytes()
	if !bytes.Equal(text, exports[1].Bytes()) {
		t.Fatalf("the stores export different text:\n%s\n%s", text, exports[1].Bytes())
	}
	records, initial, err := patch.NewDecoder(bytes.NewReader(text), "export").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	ref := fuzz.NewReference(initial)
	for _, r := range records {
		ref.Apply(r)
	}
	other, err := store.OpenMemory(store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	key := store.Key{App: m.key.App + " elsewhere", User: "u", Session: "copy"}
	for i := range 2 {
		got, err := other.Import(ctx, key, bytes.NewReader(text), store.ImportOptions{})
		if err != nil {
			t.Fatalf("import %d: %v\n%s", i, err, text)
		}
		if want := (1 - i) * len(records); got.Added != want {
			t.Fatalf("import %d added %d records, want %d", i, got.Added, want)
		}
		if err := fuzz.Compare(stored{got.View, other, key}, ref); err != nil {
			t.Fatalf("import %d: %v\n%s", i, err, text)
		}
	}
	var again bytes.Buffer
	if err := other.Export(ctx, key, &again, store.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, again.Bytes()) {
		t.Fatalf("the copy exports different text:\n%s\n%s", text, again.Bytes())
	}
}
