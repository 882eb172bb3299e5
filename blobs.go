package inbox

import (
	"net"
	"net/netip"
	"slices"

	"inbox/engine/storage"
	"inbox/internal/blob"
	"inbox/internal/safehttp"
)

// openBlobs opens the place of files. Writes, which may be nil, hears of bytes that are about to be written to the disk of this node.
// Connections to a bucket go to the address that the operator wrote, wherever it is, and to public ones to which the library knows it leads.
func openBlobs(config *Config, writes func(bytes int64)) (blob.Backend, error) {
	place, err := config.BlobStore()
	if err != nil {
		return nil, err
	}
	if place.Directory != "" {
		setting := "blob_url"
		if config.BlobURL == "file" {
			setting = "data_dir"
		}
		return storage.FilesIn(setting, place.Directory, writes)
	}

	address := place.Endpoint
	if _, _, err := net.SplitHostPort(address); err != nil {
		port := "443"
		if place.Plain {
			port = "80"
		}
		address = net.JoinHostPort(address, port)
	}
	network := safehttp.New(safehttp.Options{MetadataAddresses: config.Federation.MetadataAddresses, Resolver: safehttp.NewResolver(config.DNS.Resolver)})

	return storage.Bucket(config.DataDir, blob.S3Options{
		Endpoint: place.Endpoint, Plain: place.Plain, Region: place.Region, Bucket: place.Bucket, Prefix: place.Prefix, Style: place.Style,
		AccessKey: config.Blob.AccessKey, SecretKey: config.Blob.SecretKey.Reveal(), Writes: writes,
		Dial: network.Trusting(address, place.Bucket+"."+address).DialContext, DialRole: roleNetwork(config).DialContext,
	})
}

// roleNetwork returns the client that gets the keys of the machine's role. Unlike every other client it may connect to the metadata
// services that have them. Only the library of the S3 protocol uses it: no setting and no peer chooses the address of a request, and the
// answers serve only to sign requests to the bucket.
func roleNetwork(config *Config) *safehttp.Client {
	services := blob.RoleServices()
	permitted := slices.Clone(config.Federation.MetadataAddresses)
	for _, service := range services {
		if at, err := netip.ParseAddrPort(service); err == nil {
			permitted = append(permitted, netip.PrefixFrom(at.Addr(), at.Addr().BitLen()))
		}
	}
	options := safehttp.Options{AllowPrivate: true, MetadataAddresses: permitted, Resolver: safehttp.NewResolver(config.DNS.Resolver)}
	return safehttp.New(options).Trusting(services...)
}

// blobName is where files are, as an operator reads it.
func blobName(config *Config) string {
	if place, err := config.BlobStore(); err == nil && place.Directory != "" {
		return place.Directory
	}
	return config.BlobURL.String()
}
