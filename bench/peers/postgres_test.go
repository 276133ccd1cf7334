package peers

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver that gorm's dialect uses
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/database"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/patchlog-dev/patchlog/adk"
	"github.com/patchlog-dev/patchlog/patch"
	"github.com/patchlog-dev/patchlog/store"
	"github.com/patchlog-dev/patchlog/store/pg"
	"github.com/patchlog-dev/patchlog/store/pg/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, pgtest.Options{})) }

var ctx = context.Background()

// onServer is a session service that stores its sessions in PostgreSQL.
type onServer struct {
	name string
	open func(tb testing.TB, dsn string) (session.Service, func())
}

var onServers = []onServer{
	{"adk", openADK},
	{"patchlog", func(tb testing.TB, dsn string) (session.Service, func()) {
		return openPG(tb, dsn, store.Options{}, adk.Options{})
	}},
}

// openADK opens ADK's SQL service with the same number of connections as patchlog. By default, database/sql keeps only
// two idle connections.
func openADK(tb testing.TB, dsn string) (session.Service, func()) {
	tb.Helper()
	db, err := sql.Open("pgx", dsn)
	no(tb, err)
	db.SetMaxOpenConns(pg.DefaultMaxConns)
	db.SetMaxIdleConns(pg.DefaultMaxConns)
	svc, err := database.NewSessionService(postgres.New(postgres.Config{Conn: db}), &gorm.Config{
		Logger: logger.Default.LogMode(logger.Silent),
	})
	no(tb, err)
	no(tb, database.AutoMigrate(svc))
	return svc, func() { no(tb, db.Close()) }
}

func openPG(tb testing.TB, dsn string, sopts store.Options, opts adk.Options) (*adk.Service, func()) {
	tb.Helper()
	s, err := pg.Open(ctx, dsn, sopts, pg.Options{})
	no(tb, err)
	svc, err := adk.NewService(s, opts)
	no(tb, err)
	return svc, func() {
		no(tb, svc.Close(ctx))
		no(tb, s.Close())
	}
}

// rows inserts rows with the same bytes that patchlog stores for an event.
type rows struct {
	pool *pgxpool.Pool
	data []byte
}

const insertRow = "INSERT INTO bare (num, seq, data) VALUES ($1, $2, $3)"

func openRows(tb testing.TB, dsn string) (*rows, func()) {
	tb.Helper()
	pool, err := pgxpool.New(ctx, fmt.Sprintf("%s pool_max_conns=%d", dsn, pg.DefaultMaxConns)) // pgxpool prepares statements by default
	no(tb, err)
	_, err = pool.Exec(ctx, "CREATE TABLE bare (num bigint, seq bigint, data bytea NOT NULL, PRIMARY KEY (num, seq))")
	no(tb, err)
	e, err := adk.NewEvent(event(1))
	no(tb, err)
	data, err := patch.AppendRecord(nil, patch.Record{Seq: 1, Event: e})
	no(tb, err)
	return &rows{pool, data}, pool.Close
}

func (r *rows) insert(num, seq int) error {
	_, err := r.pool.Exec(ctx, insertRow, num, seq, r.data)
	return err
}

// fillMany creates sessions of n events each in bulk. The tables are then the same as after single appends.
func fillMany(tb testing.TB, s session.Service, dsn string, n int, ids ...string) {
	tb.Helper()
	for _, id := range ids {
		create(tb, s, id)
	}
	if _, ours := s.(*adk.Service); ours {
		st, err := pg.Open(ctx, dsn, store.Options{}, pg.Options{})
		no(tb, err)
		fillStore(tb, st, 0, n, ids...)
		no(tb, st.Close())
	} else {
		for _, id := range ids {
			no(tb, s.AppendEvent(ctx, get(tb, s, id), event(0)))
			copyEvents(tb, dsn, n, id)
		}
	}
	pgtest.Exec(tb, dsn, "VACUUM ANALYZE")
}

// fillStore appends the events with the numbers from, from+1 … to-1 to each session.
func fillStore(tb testing.TB, s *store.Store, from, to int, ids ...string) {
	tb.Helper()
	var events []*patch.Event
	for i := from; i < to; i++ {
		e, err := adk.NewEvent(event(i))
		no(tb, err)
		events = append(events, e)
	}
	for _, id := range ids {
		for batch := range slices.Chunk(events, 1000) {
			_, err := s.AppendEvents(ctx, key(id), batch, store.AppendOptions{})
			no(tb, err)
		}
	}
}

func key(id string) store.Key { return store.Key{App: "app", User: "user", Session: id} }

// copyEvents fills a session of ADK's service by copying its only event until the session has n events.
func copyEvents(tb testing.TB, dsn string, n int, id string) {
	tb.Helper()
	pgtest.Exec(tb, dsn, fmt.Sprintf(`DO $do$
			DECLARE columns text;
			BEGIN
				SELECT string_agg(CASE column_name
					WHEN 'id' THEN 'overlay(id placing lpad(i::text, 12, ''0'') from 25)'
					WHEN 'timestamp' THEN '"timestamp" + i * interval ''1 microsecond'''
					ELSE quote_ident(column_name) END, ', ' ORDER BY ordinal_position)
				INTO columns FROM information_schema.columns WHERE table_name = 'events';
				EXECUTE 'INSERT INTO events SELECT ' || columns || ' FROM events, generate_series(1, %d) i
					WHERE id = ''%s'' AND session_id = ''%s''';
			END $do$`, n-1, event(0).ID, id))
}

func TestPostgresPeers(t *testing.T) {
	for _, p := range onServers {
		t.Run(p.name, func(t *testing.T) {
			dsn := pgtest.New(t)
			s, done := p.open(t, dsn)
			defer done()
			fillMany(t, s, dsn, 300, "many")
			fill(t, s, "s", 20)
			readAll(t, get(t, s, "many"), 300)
			checkFilled(t, get(t, s, "s"))
		})
	}
}

// An append takes one round trip. To get a cached session also takes one round trip.
func TestPostgresRoundTrips(t *testing.T) {
	dsn := pgtest.New(t)
	l, through := newLink(t, dsn, 0)
	s, done := openPG(t, through+" pool_max_conns=1", store.Options{}, adk.Options{})
	defer done()
	fill(t, s, "s", 20) // these calls prepare the statements on the only connection
	sess := get(t, s, "s")
	count := func(what string, do func()) {
		t.Helper()
		before := l.trips.Load()
		do()
		if n := l.trips.Load() - before; n != 1 {
			t.Errorf("%s takes %d round trips, want 1", what, n)
		}
	}
	count("an append", func() { no(t, s.AppendEvent(ctx, sess, event(20))) })
	count("a Get", func() { get(t, s, "s") })
	other, stop := openPG(t, dsn, store.Options{}, adk.Options{})
	no(t, other.AppendEvent(ctx, get(t, other, "s"), event(21)))
	stop()
	count("a Get after an append by another process", func() {
		if n := get(t, s, "s").Events().Len(); n != 22 {
			t.Errorf("%d events, want 22", n)
		}
	})
}
