package adk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/adk/v2/session"
	"google.golang.org/genai"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

func newTestTelemetry() (adk.Telemetry, *tracetest.InMemoryExporter, *metric.ManualReader) {
	spans, reader := tracetest.NewInMemoryExporter(), metric.NewManualReader()
	return adk.Telemetry{TracerProvider: trace.NewTracerProvider(trace.WithSyncer(spans)), MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))}, spans, reader
}

func TestTelemetry(t *testing.T) {
	telemetry, spans, reader := newTestTelemetry()
	svc := newQuietService(t, adk.Options{Telemetry: telemetry})
	ctx := t.Context()
	sess := create(t, svc, "s", nil)
	noError(t, svc.AppendEvent(ctx, sess, textEvent("e1", "user", "hi")))
	noError(t, svc.AppendEvent(ctx, sess, textEvent("e2", "user", "hi")))
	stale := get(t, svc, "s")
	done, err := svc.ApplyPatch(ctx, sess, []*patch.PatchEvent{patch.NewSplice(0, 1).WithID("p1")}, store.PatchOptions{})
	noError(t, err)
	equal(t, "seq", done.Records[0].Seq, uint64(3))
	wantError(t, errOf(svc.ApplyPatch(ctx, stale, []*patch.PatchEvent{patch.NewSplice(0, 1)}, store.PatchOptions{})), store.ErrConflict)
	wantError(t, errOf(svc.Get(ctx, &session.GetRequest{AppName: "app", UserID: "user", SessionID: "none"})), store.ErrNotFound)

	const of = " gen_ai.conversation.id=s patchlog.app_name=app"
	equal(t, "spans", spanLines(spans.GetSpans()), []string{
		"append_event" + of + " patchlog.event.id=e1 patchlog.seq=1",
		"append_event" + of + " patchlog.event.id=e2 patchlog.seq=2",
		"fold_session" + of + " patchlog.seq=2 patchlog.visible_events=2",
		"apply_patch" + of + " patchlog.patch.type=splice patchlog.patch.id=p1 patchlog.seq=3",
		"apply_patch" + of + " error.type=conflict failed",
		"fold_session gen_ai.conversation.id=none patchlog.app_name=app error.type=not_found failed",
	})
	equal(t, "metrics", metricLines(t, reader), []string{
		"patchlog.conflicts{} 1",
		"patchlog.operation.duration{error.type=conflict,patchlog.operation=apply_patch} 1",
		"patchlog.operation.duration{error.type=not_found,patchlog.operation=fold_session} 1",
		"patchlog.operation.duration{patchlog.operation=append_event} 2",
		"patchlog.operation.duration{patchlog.operation=apply_patch} 1",
		"patchlog.operation.duration{patchlog.operation=fold_session} 1",
		"patchlog.records{patchlog.record.kind=event} 2",
		"patchlog.records{patchlog.record.kind=patch} 1",
		"patchlog.visible_events{} 1",
	})
}

// Every attempt to compact is reported. If the attempt is made during a run, its span belongs to the run's
// trace.
func TestCompactionTelemetry(t *testing.T) {
	telemetry, spans, reader := newTestTelemetry()
	failing := true
	cfg := inRun
	cfg.TokenThreshold = 1_900
	cfg.Summarizer = compaction.SummarizerFunc(func(ctx context.Context, req compaction.Request) (compaction.Response, error) {
		if failing {
			failing = false
			return compaction.Response{}, compaction.ErrRefusedAnswer
		}
		return adk.Summarizer(shortener{}).Summarize(ctx, req)
	})
	svc := newQuietService(t, adk.Options{Telemetry: telemetry, Compaction: cfg})
	ctx, parent := telemetry.TracerProvider.Tracer("test").Start(t.Context(), "run")
	sess := create(t, svc, "s", nil)
	for i := range 3 {
		measured := func(e *session.Event) {
			e.UsageMetadata = &genai.GenerateContentResponseUsageMetadata{PromptTokenCount: 2000}
			e.Content.Parts = append(e.Content.Parts, genai.NewPartFromText(strings.Repeat("word ", 120)))
		}
		id := fmt.Sprint("c", i)
		noError(t, svc.AppendEvent(ctx, sess, newEvent("call"+id, "1", "app", withCall(id, "lookup"), measured)))
		noError(t, svc.AppendEvent(ctx, sess, newEvent("resp"+id, "1", "app", withResponse(id, "lookup", nil))))
	}
	attempts := slices.DeleteFunc(spans.GetSpans(), func(s tracetest.SpanStub) bool { return !strings.HasPrefix(s.Name, "compact_events") })
	for _, s := range attempts {
		if s.Parent.SpanID() != parent.SpanContext().SpanID() {
			t.Errorf("%s is not part of the run", s.Name)
		}
	}
	const of = "compact_events token_threshold gen_ai.conversation.id=s patchlog.app_name=app"
	equal(t, "spans", spanLines(attempts), []string{
		of + " outcome=failed trigger=token_threshold patchlog.compaction.trigger=tokens error.type=answer_refused gen_ai.operation.name=compact_events failed",
		of + " outcome=wrote trigger=token_threshold patchlog.compaction.trigger=tokens gen_ai.operation.name=compact_events lost=0 invented=0 merged=false level=1 event_count=4 events_before=4 events_after=1" +
			" tokens_before=314 tokens_after=4 ratio=0.012738853503184714 calls=1 prompt_tokens=0 answer_tokens=0 model=shortener",
	})
	measured := slices.DeleteFunc(metricLines(t, reader), func(line string) bool { return !strings.Contains(line, "compaction") })
	equal(t, "metrics", measured, []string{
		"patchlog.compaction.duration{error.type=answer_refused,gen_ai.compaction.outcome=failed,gen_ai.compaction.trigger=token_threshold,patchlog.compaction.trigger=tokens} 1",
		"patchlog.compaction.duration{gen_ai.compaction.outcome=wrote,gen_ai.compaction.trigger=token_threshold,patchlog.compaction.trigger=tokens} 1",
		"patchlog.compaction.tokens_saved{} 310",
		"patchlog.compactions{error.type=answer_refused,gen_ai.compaction.outcome=failed,gen_ai.compaction.trigger=token_threshold,patchlog.compaction.trigger=tokens} 1",
		"patchlog.compactions{gen_ai.compaction.outcome=wrote,gen_ai.compaction.trigger=token_threshold,patchlog.compaction.trigger=tokens} 1",
	})
	if !slices.Contains(metricLines(t, reader), "patchlog.records{patchlog.record.kind=patch} 1") {
		t.Error("the patch is not counted")
	}
}

func TestVetoTelemetry(t *testing.T) {
	telemetry, _, reader := newTestTelemetry()
	svc := newQuietService(t, adk.Options{
		Telemetry:  telemetry,
		Compaction: compaction.Config{Enabled: true, CompactionInterval: 2},
		Approve:    func(context.Context, compaction.ApproveRequest[store.Key]) error { return context.Canceled },
	})
	appendExchanges(t, svc, "app", 9)
	svc.WaitForCompaction(t)
	measured := strings.Join(metricLines(t, reader), "\n")
	if !strings.Contains(measured, "patchlog.compactions{error.type=vetoed,gen_ai.compaction.outcome=vetoed,gen_ai.compaction.trigger=sliding_window,patchlog.compaction.trigger=interval}") {
		t.Errorf("measured is\n%s", measured)
	}
}

// spanLines describes spans and their attributes, except generated ids.
func spanLines(spans tracetest.SpanStubs) (lines []string) {
	for _, s := range spans {
		line := s.Name
		for _, a := range s.Attributes {
			if a.Key != "patchlog.patch.id" || a.Value.AsString() == "p1" {
				line += fmt.Sprintf(" %s=%s", strings.TrimPrefix(string(a.Key), "gen_ai.compaction."), a.Value.String())
			}
		}
		if s.Status.Code == codes.Error {
			line += " failed"
		}
		lines = append(lines, line)
	}
	return lines
}

// metricLines describes the metrics, with the sums of counters and the counts of histograms.
func metricLines(t *testing.T, reader *metric.ManualReader) (out []string) {
	t.Helper()
	var all metricdata.ResourceMetrics
	noError(t, reader.Collect(t.Context(), &all))
	for _, m := range all.ScopeMetrics[0].Metrics {
		add := func(attrs attribute.Set, n any) {
			out = append(out, fmt.Sprintf("%s{%s} %d", m.Name, attrs.Encoded(attribute.DefaultEncoder()), n))
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Count)
			}
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Count)
			}
		default:
			t.Fatalf("%s is a %T", m.Name, data)
		}
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
