package inbox

import (
	"errors"
	"net/url"
	"testing"

	"inbox/internal/safehttp"
)

// TestRoleNetwork: the keys of the machine's role are read where clouds have them, and from no other metadata service.
func TestRoleNetwork(t *testing.T) {
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials")
	network := roleNetwork(&Config{})
	for address, refused := range map[string]bool{
		"http://169.254.169.254/latest/api/token":     false,
		"http://169.254.170.2/v2/credentials/x":       false,
		"http://169.254.170.23/v1/credentials":        false,
		"https://127.0.0.1/":                          false,
		"http://169.254.169.254:8080/":                true,
		"http://169.254.10.1/":                        true,
		"http://100.100.100.200/latest/meta-data/":    true,
		"http://[fd00:ec2::254]/latest/meta-data/":    true,
		"http://168.63.129.16/machine?comp=goalstate": true,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := network.CheckTarget(t.Context(), u); errors.Is(err, safehttp.ErrRefused) != refused {
			t.Errorf("%s: %v", address, err)
		}
	}
}
