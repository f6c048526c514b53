// Go's `database/sql` over arrow-go's driver, configured by a data-source name as its users write it.

package clients

import (
	"context"
	"database/sql"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight/flightsql/driver"
)

var register = sync.OnceValue(func() error { return driver.RegisterTLSConfig("portcullis", trust()) })

// open gives a pool; the credential is a parameter of the name.
func open(t *testing.T, credential string) *sql.DB {
	t.Helper()
	must(t, register())
	pool, err := sql.Open("flightsql", "flightsql://"+address()+"?tls=portcullis&timeout=60s"+credential)
	must(t, err)
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// calling is a context with a deadline and without a credential: the name holds it.
func calling(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func good() string { return "&token=" + url.QueryEscape(token()) }

func TestDatabaseSQLSelectsWithATokenInTheName(t *testing.T) {
	pool := open(t, good())
	var one int64
	must(t, pool.QueryRowContext(calling(t), "SELECT 1").Scan(&one))
	expect(t, one, 1)
}

func TestDatabaseSQLReadsRowsWithTheirTypes(t *testing.T) {
	pool := open(t, good())
	found, err := pool.QueryContext(calling(t),
		"SELECT o_orderkey, o_clerk, CAST(o_totalprice AS DOUBLE), o_orderdate FROM orders ORDER BY o_orderkey LIMIT 2")
	must(t, err)
	defer found.Close()
	var (
		key   int64
		clerk string
		price float64
		date  time.Time
		seen  int
	)
	for found.Next() {
		must(t, found.Scan(&key, &clerk, &price, &date))
		if !strings.HasPrefix(clerk, "Clerk#") || price <= 0 || date.Year() < 1992 || date.Year() > 1998 {
			t.Fatal(key, clerk, price, date)
		}
		seen++
	}
	must(t, found.Err())
	expect(t, seen, 2)
}

func TestDatabaseSQLReadsAWholeTable(t *testing.T) {
	pool := open(t, good())
	found, err := pool.QueryContext(calling(t), "SELECT o_orderkey FROM orders")
	must(t, err)
	defer found.Close()
	keys := map[int64]bool{}
	for found.Next() {
		var key int64
		must(t, found.Scan(&key))
		keys[key] = true
	}
	must(t, found.Err())
	expect(t, len(keys), 15_000)
}

func TestDatabaseSQLPreparesOnceAndAsksAgain(t *testing.T) {
	pool := open(t, good())
	prepared, err := pool.PrepareContext(calling(t), "SELECT count(*) FROM supplier")
	must(t, err)
	for range 3 {
		var found int64
		must(t, prepared.QueryRowContext(calling(t)).Scan(&found))
		expect(t, found, 100)
	}
	must(t, prepared.Close())
}

func TestDatabaseSQLWithoutATokenIsToldWhatIsMissing(t *testing.T) {
	var one int64
	must(t, open(t, good()).QueryRowContext(calling(t), "SELECT 1").Scan(&one))
	err := open(t, "").QueryRowContext(calling(t), "SELECT 1").Scan(&one)
	if err == nil || !strings.Contains(err.Error(), "Unauthenticated") || !strings.Contains(err.Error(), "credential") {
		t.Fatal(err)
	}
}

func TestDatabaseSQLServesManyGoroutinesFromItsPool(t *testing.T) {
	pool := open(t, good())
	pool.SetMaxOpenConns(4)
	crowd(t, func(number int) error {
		var found int
		err := pool.QueryRowContext(calling(t), "SELECT count(*) FROM nation WHERE n_nationkey >= 5").Scan(&found)
		if err == nil && found != 20 {
			t.Errorf("goroutine %d read %d", number, found)
		}
		return err
	})
}
