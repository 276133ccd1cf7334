package adk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/patchlog-dev/patchlog/compaction"
	"github.com/patchlog-dev/patchlog/fold"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
)

const scope = "github.com/patchlog-dev/patchlog/adk"

// Names of operations and of their spans
const (
	opAppend = "append_event"
	opPatch  = "apply_patch"
	opFold   = "fold_session"
)

// telemetry reports the spans and metrics that docs/ADK.md lists.
type telemetry struct {
	tracer    trace.Tracer
	duration  metric.Float64Histogram
	records   metric.Int64Counter
	conflicts metric.Int64Counter
	visible   metric.Int64Histogram

	compaction compactionMetrics
}

// Telemetry selects the OpenTelemetry providers. A nil provider means the global provider.
type Telemetry struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

func newTelemetry(of Telemetry) (*telemetry, error) {
	if of.TracerProvider == nil {
		of.TracerProvider = otel.GetTracerProvider()
	}
	if of.MeterProvider == nil {
		of.MeterProvider = otel.GetMeterProvider()
	}
	meter := of.MeterProvider.Meter(scope)
	t := &telemetry{tracer: of.TracerProvider.Tracer(scope)}
	var errs [5]error
	t.duration, errs[0] = meter.Float64Histogram("patchlog.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of an operation on a session."))
	t.records, errs[1] = meter.Int64Counter("patchlog.records", metric.WithUnit("{record}"),
		metric.WithDescription("Records that were acknowledged."))
	t.conflicts, errs[2] = meter.Int64Counter("patchlog.conflicts", metric.WithUnit("{conflict}"),
		metric.WithDescription("Writes that were refused because another write was logged first."))
	t.visible, errs[3] = meter.Int64Histogram("patchlog.visible_events", metric.WithUnit("{event}"),
		metric.WithDescription("Visible events of a session when it was read."))
	t.compaction, errs[4] = newCompactionMetrics(meter)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	return t, nil
}

type operation struct {
	*telemetry
	name  string
	span  trace.Span
	began time.Time
}

func (t *telemetry) start(ctx context.Context, name string, key store.Key) (context.Context, operation) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(sessionAttributes(key)...))
	return ctx, operation{telemetry: t, name: name, span: span, began: time.Now()}
}

func sessionAttributes(key store.Key) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("gen_ai.conversation.id", key.Session),
		attribute.String("patchlog.app_name", key.App),
	}
}

func (o operation) recordView(ctx context.Context, v fold.View) {
	o.visible.Record(ctx, int64(v.Len()))
	o.span.SetAttributes(
		attribute.Int64("patchlog.seq", int64(v.Seq())),
		attribute.Int("patchlog.visible_events", v.Len()))
}

func (o operation) recordLogged(ctx context.Context, records []patch.Record) {
	for _, r := range records {
		kind := "event"
		if r.Patch != nil {
			kind = "patch"
			o.span.SetAttributes(attribute.String("patchlog.patch.type", string(r.Patch.Type())))
		}
		o.span.SetAttributes(
			attribute.String("patchlog."+kind+".id", r.ID()),
			attribute.Int64("patchlog.seq", int64(r.Seq)))
		o.records.Add(ctx, 1, metric.WithAttributes(attribute.String("patchlog.record.kind", kind)))
	}
}

// end ends the operation. If err is not nil, the operation has failed.
func (o operation) end(ctx context.Context, err error) {
	attrs := []attribute.KeyValue{attribute.String("patchlog.operation", o.name)}
	if err != nil {
		failure := attribute.String("error.type", errorType(err))
		attrs = append(attrs, failure)
		o.span.SetAttributes(failure)
		o.span.SetStatus(codes.Error, err.Error())
		if errors.Is(err, store.ErrConflict) {
			o.conflicts.Add(ctx, 1)
		}
	}
	o.duration.Record(ctx, time.Since(o.began).Seconds(), metric.WithAttributes(attrs...))
	o.span.End()
}

// errorTypes maps errors to values of error.type. The first match applies.
var errorTypes = []struct {
	err  error
	name string
}{
	{compaction.ErrVetoed, "vetoed"},
	{store.ErrOutcomeUnknown, "outcome_unknown"},
	{store.ErrNotFound, "not_found"},
	{store.ErrExists, "exists"},
	{store.ErrDuplicateID, "duplicate_id"},
	{store.ErrConflict, "conflict"},
	{fold.ErrUnknownPatch, "unknown_patch"},
	{fold.ErrOutOfRange, "out_of_range"},
	{fold.ErrEventNotFound, "event_not_found"},
	{fold.ErrOrphanedCall, "orphaned_call"},
	{store.ErrTooLarge, "too_large"},
	{store.ErrInvalid, "invalid"},
	{store.ErrCorrupt, "corrupt"},
	{store.ErrClosed, "closed"},
	{compaction.ErrRefusedAnswer, "answer_refused"},
	{compaction.ErrSummarizerPanic, "summarizer_panic"},
	{compaction.ErrSummarizerBusy, "summarizer_busy"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline_exceeded"},
}

func errorType(err error) string {
	for _, t := range errorTypes {
		if errors.Is(err, t.err) {
			return t.name
		}
	}
	return "_OTHER"
}
