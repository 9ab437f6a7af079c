//! The functions of the machine's GSSAPI library that a context needs, loaded at first use: godwit
//! is neither built nor linked with it (RFC 2744).

use super::Refused;
use std::{
    env,
    ffi::{CStr, CString, c_char, c_int, c_void},
    os::unix::ffi::OsStringExt,
    ptr,
    sync::OnceLock,
};

/// Type of a status, a time or a set of flags in the library.
pub(super) type Number = u32;
/// A context, name or credential of the library's, of which only the address is known.
pub(super) type Thing = *mut c_void;

/// Bytes of ours or of the library's.
#[repr(C)]
pub(super) struct Bytes {
    pub(super) length: usize,
    pub(super) at: *mut c_void,
}

impl Bytes {
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
    length: Number,
    elements: *const c_void,
}

// SAFETY: it leads to bytes that never change and never go.
unsafe impl Sync for Oid {}

impl Oid {
    const fn of(der: &'static [u8]) -> Self {
        Self {
            length: der.len() as Number,
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
pub(super) struct Place {
    pub(super) key: *const c_char,
    pub(super) value: *const c_char,
}

#[repr(C)]
pub(super) struct Places {
    pub(super) count: Number,
    pub(super) elements: *const Place,
}

/// Kerberos 5: 1.2.840.113554.1.2.2 (RFC 4121).
pub(super) static KERBEROS: Oid = Oid::of(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02");
/// `ftp@host`: 1.2.840.113554.1.2.1.4.
pub(super) static OF_HOST: Oid = Oid::of(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04");

macro_rules! functions {
    ($($name:ident = $symbol:literal ( $($kind:ty),* );)*) => {
        /// Each function's first argument takes the mechanism's own status.
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn(*mut Number, $($kind),*) -> Number,)*
        }

        impl Library {
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
                    $($name: unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut Number, $($kind),*) -> Number>(symbol(library, $symbol)?) },)*
                })
            }
        }
    };
}

functions! {
    import_name = c"gss_import_name" (*const Bytes, *const Oid, *mut Thing);
    display_name = c"gss_display_name" (Thing, *mut Bytes, *mut *const Oid);
    acquire_cred_from = c"gss_acquire_cred_from" (
        Thing, Number, *const OidSet, c_int, *const Places, *mut Thing, *mut *mut OidSet, *mut Number
    );
    accept_sec_context = c"gss_accept_sec_context" (
        *mut Thing, Thing, *const Bytes, *const c_void, *mut Thing, *mut *const Oid, *mut Bytes,
        *mut Number, *mut Number, *mut Thing
    );
    init_sec_context = c"gss_init_sec_context" (
        Thing, *mut Thing, Thing, *const Oid, Number, Number, *const c_void, *const Bytes,
        *mut *const Oid, *mut Bytes, *mut Number, *mut Number
    );
    inquire_context = c"gss_inquire_context" (
        Thing, *mut Thing, *mut Thing, *mut Number, *mut *const Oid, *mut Number, *mut c_int, *mut c_int
    );
    wrap = c"gss_wrap" (Thing, c_int, Number, *const Bytes, *mut c_int, *mut Bytes);
    unwrap = c"gss_unwrap" (Thing, *const Bytes, *mut Bytes, *mut c_int, *mut Number);
    wrap_size_limit = c"gss_wrap_size_limit" (Thing, c_int, Number, Number, *mut Number);
    display_status = c"gss_display_status" (Number, c_int, *const Oid, *mut Number, *mut Bytes);
    release_buffer = c"gss_release_buffer" (*mut Bytes);
    release_name = c"gss_release_name" (*mut Thing);
    release_cred = c"gss_release_cred" (*mut Thing);
    ccache_name = c"gss_krb5_ccache_name" (*const c_char, *mut *const c_char);
    delete_sec_context = c"gss_delete_sec_context" (*mut Thing, *mut Bytes);
}

/// Returns the library, loaded at the first call; a failure then is returned by all later calls.
pub(super) fn library() -> Result<&'static Library, Refused> {
    static LOADED: OnceLock<Result<Library, Refused>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| {
        let named = env::var_os(FILE_VARIABLE).filter(|name| !name.is_empty());
        load(named.map_or_else(|| USUAL.to_owned(), lossless))
    });
    loaded.as_ref().map_err(Clone::clone)
}

fn load(file: CString) -> Result<Library, Refused> {
    Library::load(&file).map_err(|said| Refused::Missing {
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
                Err(Refused::Missing { library, said }) => {
                    assert_eq!(library, file.to_str().unwrap());
                    assert!(said.contains(why), "{said}");
                }
                other => panic!("{:?}", other.map(|_| "loaded")),
            }
        }
    }
}
