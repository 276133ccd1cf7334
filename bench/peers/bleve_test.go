package peers

import (
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/keyword"
	"github.com/blevesearch/bleve/v2/analysis/lang/en"
	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/mapping"
	"github.com/blevesearch/bleve/v2/search/query"
	index "github.com/blevesearch/bleve_index_api"

	"github.com/patchlog-dev/patchlog/bench/locomo"
	"github.com/patchlog-dev/patchlog/internal/identifiers"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/recall"
)

// bleveOptions selects the storage of an index and its indexed fields. The values are the constants below.
type bleveOptions struct{ store, fields string }

const (
	inMemory = "memory" // bleve's file engine without a path
	inFile   = "file"   // an index in a file, which syncs each batch

	words  = "words"  // the text and the author of an event
	exact  = "exact"  // words, and the exact identifiers, ids, author and tools of an event
	beside = "beside" // words, and the words of the adjacent events
)

// bleveIndex is an index of a log that uses the search library bleve.
type bleveIndex struct {
	opened bleve.Index
	fields string
}

// openBleve opens an empty index that stores neither texts nor positions.
func openBleve(tb testing.TB, o bleveOptions) *bleveIndex {
	tb.Helper()
	var opened bleve.Index
	var err error
	if o.store == inFile {
		opened, err = bleve.New(filepath.Join(tb.TempDir(), "bleve"), o.mapping())
	} else {
		opened, err = bleve.NewUsing("", o.mapping(), scorch.Name, scorch.Name, nil)
	}
	no(tb, err)
	return &bleveIndex{opened, o.fields}
}

func (o bleveOptions) mapping() mapping.IndexMapping {
	doc := bleve.NewDocumentStaticMapping()
	add := func(analyzer string, names ...string) {
		for _, name := range names {
			f := bleve.NewTextFieldMapping()
			f.Analyzer = analyzer
			f.Store, f.IncludeTermVectors, f.IncludeInAll, f.DocValues = false, false, false, false
			doc.AddFieldMappingsAt(name, f)
		}
	}
	add(en.AnalyzerName, "text")
	switch o.fields {
	case exact:
		add(keyword.Name, "exact", "author", "tool")
	case beside:
		add(en.AnalyzerName, "beside", "next")
	}
	m := bleve.NewIndexMapping()
	m.DefaultMapping = doc
	m.ScoringModel = index.BM25Scoring
	return m
}

// add adds events in one batch. It treats only events in the same batch as adjacent.
func (x *bleveIndex) add(tb testing.TB, records []patch.Record) {
	tb.Helper()
	texts := make([]string, len(records))
	for i, r := range records {
		texts[i] = r.Event.Author() + "\n" + recall.Text(r.Event)
	}
	around := func(i, distance int) (text string) {
		for _, at := range []int{i - distance, i + distance} {
			if at >= 0 && at < len(texts) {
				text += texts[at] + "\n"
			}
		}
		return text
	}
	batch := x.opened.NewBatch()
	for i, r := range records {
		doc := map[string]any{"text": texts[i]}
		switch x.fields {
		case exact:
			doc["exact"], doc["tool"] = exactly(r.Event, texts[i])
			doc["author"] = r.Event.Author()
		case beside:
			doc["beside"], doc["next"] = around(i, 1), around(i, 2)
		}
		no(tb, batch.Index(strconv.FormatUint(r.Seq, 10), doc))
	}
	no(tb, x.opened.Batch(batch))
}

// exactly returns the exact terms of an event, as in [recall.Index]: the identifiers in its text, its ids, and the
// tools that it calls or answers.
func exactly(e *patch.Event, text string) (ids, tools []string) {
	ids = append(slices.Collect(identifiers.FindAll(text)), e.ID(), e.InvocationID())
	for p := range e.FunctionParts() {
		ids, tools = append(ids, p.ID), append(tools, p.Name)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return id == "" }), tools
}

func (x *bleveIndex) find(tb testing.TB, question string) (seqs []uint64) {
	tb.Helper()
	match := func(field string) query.Query {
		q := bleve.NewMatchQuery(question)
		q.SetField(field)
		return q
	}
	either := []query.Query{match("text")}
	switch x.fields {
	case exact:
		for id := range identifiers.FindAll(question) {
			q := bleve.NewTermQuery(id)
			q.SetField("exact")
			either = append(either, q)
		}
	case beside:
		either = append(either, match("beside"), match("next"))
	}
	q := either[0]
	if len(either) > 1 {
		q = bleve.NewDisjunctionQuery(either...)
	}
	found, err := x.opened.Search(bleve.NewSearchRequestOptions(q, locomo.Best, 0, false))
	no(tb, err)
	for _, hit := range found.Hits {
		seq, err := strconv.ParseUint(hit.ID, 10, 64)
		no(tb, err)
		seqs = append(seqs, seq)
	}
	return seqs
}

func (x *bleveIndex) close(tb testing.TB) {
	tb.Helper()
	no(tb, x.opened.Close())
}
