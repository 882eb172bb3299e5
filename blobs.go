package inbox

import (
	"net"

	"inbox/engine/storage"
	"inbox/internal/blob"
	"inbox/internal/safehttp"
)

// openBlobs opens the place of files. Writes, which may be nil, hears of bytes that are about to be written to the disk of this node.
// Connections to a bucket go to the address that the operator wrote, wherever it is, and to no other.
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
	trusted := []string{address}
	if place.HostStyle {
		trusted = append(trusted, place.Bucket+"."+address)
	}
	network := safehttp.New(safehttp.Options{MetadataAddresses: config.Federation.MetadataAddresses, Resolver: safehttp.NewResolver(config.DNS.Resolver)}).Trusting(trusted...)

	return storage.Bucket(config.DataDir, blob.S3Options{
		Endpoint: place.Endpoint, Plain: place.Plain, Region: place.Region, Bucket: place.Bucket, Prefix: place.Prefix, HostStyle: place.HostStyle,
		AccessKey: config.Blob.AccessKey, SecretKey: config.Blob.SecretKey.Reveal(), Writes: writes, Dial: network.DialContext,
	})
}

// blobName is where files are, as an operator reads it.
func blobName(config *Config) string {
	if place, err := config.BlobStore(); err == nil && place.Directory != "" {
		return place.Directory
	}
	return config.BlobURL.String()
}
