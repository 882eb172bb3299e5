//go:build !linux

package attacks

import "errors"

func inOwnNetwork(string, ...string) (int, error) {
	return 0, errors.New("the attacks need network namespaces, which Linux has")
}
