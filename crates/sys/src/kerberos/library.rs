//! The functions of the machine's GSSAPI library that a context needs, loaded at first use: godwit
//! is neither built nor linked with it (RFC 2744).

use super::KerberosRefusal;
use std::{
    env,
    ffi::{CStr, CString, c_char, c_int, c_void},
    os::unix::ffi::OsStringExt,
    ptr,
    sync::OnceLock,
};

/// Type of a status, a time or a set of flags in the library.
pub(super) type GssNumber = u32;
/// A context, name or credential of the library's, of which only the address is known.
pub(super) type GssHandle = *mut c_void;

/// Bytes of ours or of the library's.
#[repr(C)]
pub(super) struct GssBuffer {
    pub(super) length: usize,
    pub(super) at: *mut c_void,
}

impl GssBuffer {
    pub(super) fn none() -> Self {
        let at = ptr::null_mut();
        Self { length: 0, at }
    }

    /// Lends ours; the library only reads them.
    pub(super) fn of(lent: &[u8]) -> Self {
        let at = lent.as_ptr().cast_mut().cast();
        let length = lent.len();
        Self { length, at }
    }
}

/// The number by which a mechanism or a kind of name is known.
#[repr(C)]
pub(super) struct Oid {
    length: GssNumber,
    elements: *const c_void,
}

// SAFETY: it leads to bytes that never change and never go.
unsafe impl Sync for Oid {}

impl Oid {
    const fn of(der: &'static [u8]) -> Self {
        Self {
            length: der.len() as GssNumber,
            elements: der.as_ptr().cast(),
        }
    }
}

#[repr(C)]
pub(super) struct OidSet {
    pub(super) count: usize,
    pub(super) elements: *const Oid,
}

/// Location of a credential: one key (`keytab`) and its value.
#[repr(C)]
pub(super) struct KeyValue {
    pub(super) key: *const c_char,
    pub(super) value: *const c_char,
}

#[repr(C)]
pub(super) struct KeyValues {
    pub(super) count: GssNumber,
    pub(super) elements: *const KeyValue,
}

/// Kerberos 5: 1.2.840.113554.1.2.2 (RFC 4121).
pub(super) static KERBEROS: Oid = Oid::of(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02");
/// `ftp@host`: 1.2.840.113554.1.2.1.4.
pub(super) static OF_HOST: Oid = Oid::of(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04");

macro_rules! functions {
    ($($name:ident = $symbol:literal ( $($kind:ty),* );)*) => {
        /// Each function's first argument takes the mechanism's own status.
        pub(super) struct GssLibrary {
            $(pub(super) $name: unsafe extern "C" fn(*mut GssNumber, $($kind),*) -> GssNumber,)*
        }

        impl GssLibrary {
            fn load(file: &CStr) -> Result<Self, String> {
                // SAFETY: the name ends with a zero byte. The administrator who installed the
                // library vouches for its initialisers, as for every linked library.
                let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
                if library.is_null() {
                    return Err(last_word());
                }
                Ok(Self {
                    // SAFETY: these are the types of RFC 2744 and of MIT's gssapi_ext.h and gssapi_krb5.h, which
                    // Heimdal shares, and the library is never unloaded.
                    $($name: unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut GssNumber, $($kind),*) -> GssNumber>(symbol(library, $symbol)?) },)*
                })
            }
        }
    };
}

functions! {
    import_name = c"gss_import_name" (*const GssBuffer, *const Oid, *mut GssHandle);
    display_name = c"gss_display_name" (GssHandle, *mut GssBuffer, *mut *const Oid);
    acquire_cred_from = c"gss_acquire_cred_from" (
        GssHandle, GssNumber, *const OidSet, c_int, *const KeyValues, *mut GssHandle, *mut *mut OidSet, *mut GssNumber
    );
    accept_sec_context = c"gss_accept_sec_context" (
        *mut GssHandle, GssHandle, *const GssBuffer, *const c_void, *mut GssHandle, *mut *const Oid, *mut GssBuffer,
        *mut GssNumber, *mut GssNumber, *mut GssHandle
    );
    init_sec_context = c"gss_init_sec_context" (
        GssHandle, *mut GssHandle, GssHandle, *const Oid, GssNumber, GssNumber, *const c_void, *const GssBuffer,
        *mut *const Oid, *mut GssBuffer, *mut GssNumber, *mut GssNumber
    );
    inquire_context = c"gss_inquire_context" (
        GssHandle, *mut GssHandle, *mut GssHandle, *mut GssNumber, *mut *const Oid, *mut GssNumber, *mut c_int, *mut c_int
    );
    wrap = c"gss_wrap" (GssHandle, c_int, GssNumber, *const GssBuffer, *mut c_int, *mut GssBuffer);
    unwrap = c"gss_unwrap" (GssHandle, *const GssBuffer, *mut GssBuffer, *mut c_int, *mut GssNumber);
    wrap_size_limit = c"gss_wrap_size_limit" (GssHandle, c_int, GssNumber, GssNumber, *mut GssNumber);
    display_status = c"gss_display_status" (GssNumber, c_int, *const Oid, *mut GssNumber, *mut GssBuffer);
    release_buffer = c"gss_release_buffer" (*mut GssBuffer);
    release_name = c"gss_release_name" (*mut GssHandle);
    release_cred = c"gss_release_cred" (*mut GssHandle);
    ccache_name = c"gss_krb5_ccache_name" (*const c_char, *mut *const c_char);
    delete_sec_context = c"gss_delete_sec_context" (*mut GssHandle, *mut GssBuffer);
}

/// Returns the library, loaded at the first call; a failure then is returned by all later calls.
pub(super) fn library() -> Result<&'static GssLibrary, KerberosRefusal> {
    static LOADED: OnceLock<Result<GssLibrary, KerberosRefusal>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let named = env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty());
        load(named.map_or_else(|| USUAL.to_owned(), lossless))
    });
    loaded.as_ref().map_err(Clone::clone)
}

fn load(file: CString) -> Result<GssLibrary, KerberosRefusal> {
    GssLibrary::load(&file).map_err(|said| KerberosRefusal::Missing {
        library: file.to_string_lossy().into_owned(),
        said,
    })
}

fn lossless(name: std::ffi::OsString) -> CString {
    CString::new(name.into_vec()).expect("the environment has no zero bytes")
}

fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the library is open, and the name ends with a zero byte.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    match found.is_null() {
        false => Ok(found),
        true => Err(format!("it has no {}", name.to_string_lossy())),
    }
}

fn last_word() -> String {
    // SAFETY: it is the answer to the failed call of this thread, or null.
    let said = unsafe { libc::dlerror() };
    match said.is_null() {
        true => "the loader does not say why".into(),
        // SAFETY: the loader gives a text that ends with a zero byte, and lasts until the next call.
        false => unsafe { CStr::from_ptr(said) }
            .to_string_lossy()
            .into_owned(),
    }
}

/// Names another library than the usual one.
const FILE_VARIABLE: &str = "GODWIT_GSSAPI";
const USUAL: &CStr = c"libgssapi_krb5.so.2";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_other_library_is_named() {
        for (file, why) in [
            (c"/nonexistent/libgssapi.so", "cannot open shared object"),
            (c"libm.so.6", "it has no gss_"),
        ] {
            match load(file.to_owned()) {
                Err(KerberosRefusal::Missing { library, said }) => {
                    assert_eq!(library, file.to_str().unwrap());
                    assert!(said.contains(why), "{said}");
                }
                other => panic!("{:?}", other.map(|_| "loaded")),
            }
        }
    }
}
