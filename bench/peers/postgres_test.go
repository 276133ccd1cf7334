package peers

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver that gorm's dialect is made for
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

// onServer is a session service on a PostgreSQL database.
type onServer struct {
	name string
	open func(tb testing.TB, dsn string) (session.Service, func())
}

// prepared makes pgx keep statements prepared on the server, as gorm's dialect and
// database/sql have it do. patchlog leaves that to whoever has a direct connection.
const prepared = " default_query_exec_mode=cache_statement"

var onServers = []onServer{
	{"adk", openADK},
	{"patchlog", func(tb testing.TB, dsn string) (session.Service, func()) {
		return openPG(tb, dsn, store.Options{}, adk.Options{})
	}},
	{"patchlog-prepared", func(tb testing.TB, dsn string) (session.Service, func()) {
		return openPG(tb, dsn+prepared, store.Options{}, adk.Options{})
	}},
}

// openADK opens ADK's SQL service with as many connections as patchlog has. As
// database/sql comes it keeps two, and makes others anew for each transaction.
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

// rows inserts rows of the bytes that patchlog has of an event, and nothing else.
type rows struct {
	pool *pgxpool.Pool
	data []byte
}

const insertRow = "INSERT INTO bare (num, seq, data) VALUES ($1, $2, $3)"

func openRows(tb testing.TB, dsn string) (*rows, func()) {
	tb.Helper()
	pool, err := pgxpool.New(ctx, fmt.Sprintf("%s pool_max_conns=%d", dsn, pg.DefaultMaxConns)) // prepared, as pgx comes
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

// fillMany makes sessions of n events each, by the quickest way that leaves the service as
// if they had been appended one by one.
func fillMany(tb testing.TB, s session.Service, dsn string, n int, ids ...string) {
	tb.Helper()
	for _, id := range ids {
		create(tb, s, id)
	}
	if _, ours := s.(*adk.Service); ours {
		fillStore(tb, dsn, n, ids...)
		return
	}
	for _, id := range ids {
		no(tb, s.AppendEvent(ctx, get(tb, s, id), event(0)))
	}
	copyEvents(tb, dsn, n, ids...)
}

// fillStore appends n events to each of sessions that are there and have none.
func fillStore(tb testing.TB, dsn string, n int, ids ...string) {
	tb.Helper()
	s, err := pg.Open(ctx, dsn, store.Options{}, pg.Options{})
	no(tb, err)
	defer func() { no(tb, s.Close()) }()
	for _, id := range ids {
		for from := 0; from < n; {
			var events []*patch.Event
			for ; from < n && len(events) < 1000; from++ {
				e, err := adk.NewEvent(event(from))
				no(tb, err)
				events = append(events, e)
			}
			_, err := s.AppendEvents(ctx, key(id), store.AppendOptions{}, events...)
			no(tb, err)
		}
	}
}

func key(id string) store.Key { return store.Key{App: "app", User: "user", Session: id} }

// copyEvents copies the one event that sessions of ADK's service have until there are n.
func copyEvents(tb testing.TB, dsn string, n int, ids ...string) {
	tb.Helper()
	for _, id := range ids {
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
}

// others fills a database that has so many events of other sessions with more of them, 200
// a session, until it has n.
func others(tb testing.TB, s session.Service, dsn string, had, n int) {
	tb.Helper()
	var ids []string
	for i := had / 200; i < n/200; i++ {
		ids = append(ids, fmt.Sprint("other", i))
	}
	fillMany(tb, s, dsn, 200, ids...)
	pgtest.Exec(tb, dsn, "VACUUM")
	pgtest.Exec(tb, dsn, "ANALYZE")
}

// Each service does what is measured.
func TestPostgresPeers(t *testing.T) {
	for _, p := range onServers {
		t.Run(p.name, func(t *testing.T) {
			dsn := pgtest.New(t)
			s, done := p.open(t, dsn)
			defer done()
			fillMany(t, s, dsn, 300, "many")
			fill(t, s, "s", 20)
			if n := get(t, s, "many").Events().Len(); n != 300 {
				t.Fatalf("%d events, want 300", n)
			}
			sess := get(t, s, "s")
			if n := sess.Events().Len(); n != 20 {
				t.Fatalf("%d events, want 20", n)
			}
			if v, err := sess.State().Get("key7"); err != nil || fmt.Sprint(v) != "7" {
				t.Fatalf("key7 is %v, %v", v, err)
			}
		})
	}
}

// An append and a Get of a session in use are one round trip each.
func TestPostgresRoundTrips(t *testing.T) {
	for _, mode := range []string{"", prepared} {
		dsn := pgtest.New(t)
		l, through := newLink(t, dsn, 0)
		s, done := openPG(t, through+mode, store.Options{}, adk.Options{})
		fill(t, s, "s", 20) // the statements are known on the connection after that
		sess := get(t, s, "s")
		count := func(what string, want int64, do func()) {
			t.Helper()
			before := l.trips.Load()
			do()
			if n := l.trips.Load() - before; n != want {
				t.Errorf("%s%s takes %d round trips, want %d", what, mode, n, want)
			}
		}
		count("an append", 1, func() { no(t, s.AppendEvent(ctx, sess, event(20))) })
		count("a Get", 1, func() { get(t, s, "s") })
		// Another process appends: what is new comes with the look.
		other, stop := openPG(t, dsn, store.Options{}, adk.Options{})
		no(t, other.AppendEvent(ctx, get(t, other, "s"), event(21)))
		stop()
		count("a Get after another's append", 1, func() {
			if n := get(t, s, "s").Events().Len(); n != 22 {
				t.Errorf("%d events, want 22", n)
			}
		})
		done()
	}
}
