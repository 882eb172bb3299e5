package doctor_test

import (
	"strings"
	"testing"

	"inbox"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
	"inbox/operator/doctor"
)

// TestDoctorSaysWhatAFailoverLoses: the doctor names the standbys of a real PostgreSQL, whether commits wait for one, and what to change.
func TestDoctorSaysWhatAFailoverLoses(t *testing.T) {
	server := storetest.NewCluster(t)
	finds := func(require bool) doctor.Finding {
		t.Helper()
		variables := []string{
			"INBOX_DATABASE_URL=" + storetest.URL(server), "INBOX_DATA_DIR=" + t.TempDir(), "INBOX_SMTP_LISTEN=off", "INBOX_HTTP_LISTEN=127.0.0.1:1",
		}
		if require {
			variables = append(variables, "INBOX_DATABASE_REQUIRE_SYNCHRONOUS=true")
		}
		config, err := inbox.LoadConfig("", variables)
		if err != nil {
			t.Fatal(err)
		}
		opened, err := inbox.OpenOperator(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = opened.Close() }()

		findings, err := opened.Doctor.Examine(t.Context(), doctor.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range findings {
			if one.Name == "replication" {
				return one
			}
		}
		t.Fatalf("nothing was found about the replication: %+v", findings)
		return doctor.Finding{}
	}
	check := func(found doctor.Finding, status string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if found.Status != status || !strings.Contains(found.Detail+" | "+found.Remedy, text) {
				t.Errorf("found %+v; want %s and %q", found, status, text)
			}
		}
	}

	check(finds(false), "ok", "no standby")
	check(finds(true), "fail", "database.require_synchronous", "synchronous_standby_names")

	state := func(want string) {
		t.Helper()
		await.Until(t, "the standby is "+want, func() bool { return server.Ask("SELECT sync_state FROM pg_stat_replication") == want })
	}

	standby := server.Standby()
	state("async")
	check(finds(false), "warn", "asynchronous", "standby async, 0 KiB behind", "synchronous_standby_names")
	check(finds(true), "fail", "standby async", "synchronous_standby_names")

	server.Set(map[string]string{"synchronous_standby_names": "standby"})
	state("sync")
	check(finds(true), "ok", "standby sync, 0 KiB behind")

	standby.Stop()
	state("")
	check(finds(true), "fail", "none is connected", "start a standby")
}
