package metadata

import "testing"

func TestNotationsOfOneAddress(t *testing.T) {
	for host, named := range map[string]bool{
		"169.254.169.254": true, "169.254.169.254.": true, "169.254.170.2": true, "2852039166": true, "0xa9fea9fe": true, "0XA9.0xFE.0xA9.0xFE": true, "0251.0376.0251.0376": true,
		"169.254.43518": true, "169.16689662": true, "::ffff:169.254.169.254": true, "::ffff:a9fe:a9fe": true, "::169.254.169.254": true, "::ffff:0:a9fe:a9fe": true,
		"64:ff9b::169.254.169.254": true, "64:ff9b:1::a9fe:a9fe": true, "2002:a9fe:a9fe::1": true, "fe80::a9fe:a9fe%eth0": true, "fd00:ec2::254": true, "fd00:ec2::23": true, "FD00:EC2:0:0::254": true,
		"fd20:ce::254": true, "fd00:c1::a9fe:a9fe": true, "100.100.100.200": true, "168.63.129.16": true, "192.0.0.192": true,
		"metadata.google.internal": true, "Metadata.Google.Internal.": true, "metadata": true, "instance-data": true,

		"127.0.0.1": false, "::1": false, "::": false, "10.0.0.1": false, "fd00::1": false, "1.2.3.4": false, "2130706433": false, "metadata.example": false, "169.254.169.254.example": false,
		"0xa9fea9fe.example": false, "": false, "a.b": false, "1.2.3.4.5": false, "256.254.169.254": false,
	} {
		if NamedBy(host) != named {
			t.Errorf("%q: %v, want %v", host, !named, named)
		}
	}
}
