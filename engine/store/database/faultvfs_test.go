package database

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// diskFault decides about each access of SQLite to a file below a directory: the result code with which it fails, or 0.
type diskFault func(access, path string) int32

// disks are the directories whose files fail.
var disks struct {
	lock   sync.Mutex
	faults map[string]*atomic.Pointer[diskFault]
	files  map[uintptr]string // paths of open files, by SQLite's handle
}

// failingDisk returns a directory, and a function that sets how accesses to its files fail; nil = they do not. From then on SQLite reaches
// all files of the process through a VFS that asks first and then uses the VFS of the system.
func failingDisk(t *testing.T) (directory string, fail func(diskFault)) {
	t.Helper()
	registerVFS()
	directory = t.TempDir()
	current := new(atomic.Pointer[diskFault])
	disks.lock.Lock()
	disks.faults[directory] = current
	disks.lock.Unlock()

	t.Cleanup(func() {
		disks.lock.Lock()
		delete(disks.faults, directory)
		disks.lock.Unlock()
	})
	return directory, func(fault diskFault) {
		if fault == nil {
			current.Store(nil)
			return
		}
		current.Store(&fault)
	}
}

// failure returns the result code of an access to an open file; 0 = it is done.
func failure(access string, file uintptr) int32 {
	disks.lock.Lock()
	path := disks.files[file]
	var fault *diskFault
	for directory, current := range disks.faults {
		if strings.HasPrefix(path, directory+"/") {
			fault = current.Load()
		}
	}
	disks.lock.Unlock()
	if fault == nil {
		return sqlite3.SQLITE_OK
	}
	return (*fault)(access, path)
}

// The functions of a VFS that are replaced.
type (
	openFile  = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32
	moveBytes = func(tls *libc.TLS, file, buffer uintptr, amount int32, offset sqlite3.Tsqlite3_int64) int32
	syncFile  = func(tls *libc.TLS, file uintptr, flags int32) int32
)

// toC returns a Go function as the transpiled code calls it, and fromC the function that such a pointer stands for. The garbage
// collector does not see the pointer, so the function is kept.
func toC[F any](function F) uintptr {
	kept = append(kept, function)
	return *(*uintptr)(unsafe.Pointer(&struct{ function F }{function}))
}

func fromC[F any](pointer uintptr) F {
	return *(*F)(unsafe.Pointer(&struct{ pointer uintptr }{pointer}))
}

// at returns what a pointer of the transpiled code points to; its memory is not that of Go.
func at[T any](pointer uintptr) *T { return *(**T)(unsafe.Pointer(&pointer)) }

// memory of the VFS, which SQLite keeps.
var (
	vfsOfTest     sqlite3.Tsqlite3_vfs
	methodsOfTest = map[uintptr]*sqlite3.Tsqlite3_io_methods{} // by those that they replace
	originalOf    = map[uintptr]*sqlite3.Tsqlite3_io_methods{} // by open file
	kept          []any                                        // functions of it
)

// registerVFS makes the VFS that of all connections opened from now on.
var registerVFS = sync.OnceFunc(func() {
	disks.faults, disks.files = map[string]*atomic.Pointer[diskFault]{}, map[uintptr]string{}
	tls := libc.NewTLS()
	system := sqlite3.Xsqlite3_vfs_find(tls, 0)
	vfsOfTest = *at[sqlite3.Tsqlite3_vfs](system)
	open := fromC[openFile](vfsOfTest.FxOpen)
	name, err := libc.CString("failing")
	if err != nil {
		panic(err)
	}

	vfsOfTest.FpNext, vfsOfTest.FzName = 0, name
	vfsOfTest.FxOpen = toC(func(tls *libc.TLS, _, name, file uintptr, flags int32, outFlags uintptr) int32 {
		result := open(tls, system, name, file, flags, outFlags)
		if result == sqlite3.SQLITE_OK && name != 0 {
			replaceMethods(file, libc.GoString(name))
		}
		return result
	})
	sqlite3.Xsqlite3_vfs_register(tls, uintptr(unsafe.Pointer(&vfsOfTest)), 1)
})

func replaceMethods(file uintptr, path string) {
	disks.lock.Lock()
	defer disks.lock.Unlock()

	handle := at[sqlite3.Tsqlite3_file](file)
	original := at[sqlite3.Tsqlite3_io_methods](handle.FpMethods)
	replaced := methodsOfTest[handle.FpMethods]
	if replaced == nil {
		copied := *original
		copied.FxRead = toC(moving("read", func(m *sqlite3.Tsqlite3_io_methods) uintptr { return m.FxRead }))
		copied.FxWrite = toC(moving("write", func(m *sqlite3.Tsqlite3_io_methods) uintptr { return m.FxWrite }))
		copied.FxSync = toC(syncing)
		replaced = &copied
		methodsOfTest[handle.FpMethods] = replaced
	}
	disks.files[file], originalOf[file] = path, original
	handle.FpMethods = uintptr(unsafe.Pointer(replaced))
}

func methodsOf(file uintptr) *sqlite3.Tsqlite3_io_methods {
	disks.lock.Lock()
	defer disks.lock.Unlock()
	return originalOf[file]
}

func moving(access string, method func(*sqlite3.Tsqlite3_io_methods) uintptr) moveBytes {
	return func(tls *libc.TLS, file, buffer uintptr, amount int32, offset sqlite3.Tsqlite3_int64) int32 {
		if code := failure(access, file); code != sqlite3.SQLITE_OK {
			return code
		}
		return fromC[moveBytes](method(methodsOf(file)))(tls, file, buffer, amount, offset)
	}
}

func syncing(tls *libc.TLS, file uintptr, flags int32) int32 {
	if code := failure("sync", file); code != sqlite3.SQLITE_OK {
		return code
	}
	return fromC[syncFile](methodsOf(file).FxSync)(tls, file, flags)
}
