//! Kerberos contexts, by the GSSAPI library of the machine.
//!
//! The rules for tokens, names and wrapped bytes are elsewhere. Here the library is called, and its
//! values are taken over and given back.

#![allow(unsafe_code)] // each block says who guarantees what

mod library;

use library::{
    GssBuffer, GssHandle, GssLibrary, GssNumber, KERBEROS, KeyValue, KeyValues, OF_HOST, OidSet,
    library,
};
use std::{
    ffi::{CStr, CString, c_int},
    fmt,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr, slice,
};

/// Why the library does not do it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum KerberosRefusal {
    /// There is none that can be loaded.
    Missing {
        /// Which was looked for.
        library: String,
        /// Message of the loader.
        said: String,
    },
    /// The library refused.
    No {
        /// Status of the library, as RFC 2744 numbers it.
        major: u32,
        /// Status of Kerberos, if Kerberos refused.
        minor: i32,
        /// Message of the library.
        said: String,
    },
}

impl fmt::Display for KerberosRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { library, said } => write!(f, "{library}: {said}"),
            Self::No { said, .. } => f.write_str(said),
        }
    }
}

impl std::error::Error for KerberosRefusal {}

/// Protection of wrapped bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Wrapping {
    /// The bytes cannot be changed unseen.
    Safe,
    /// The bytes cannot be read either.
    Private,
}

/// Result of unwrapping.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unwrapped {
    /// Bytes as they were before wrapping.
    pub clear: Vec<u8>,
    /// Protection that the bytes had.
    pub how: Wrapping,
    /// Tells whether the library found the token neither repeated nor out of order. It remembers 64
    /// tokens. After a token that overtook as many, MIT's library may take new ones for known.
    pub in_turn: bool,
}

/// Result of a token.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Stepped {
    /// Token to send; empty if there is none.
    pub token: Vec<u8>,
    /// Both sides have agreed.
    pub stands: bool,
}

/// Names at both ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KerberosNames {
    /// Client: `alice@REALM`, as the library writes it.
    pub initiator: Vec<u8>,
    /// Service that the client asked for: `ftp/host@REALM`.
    pub acceptor: Vec<u8>,
    /// Whether wrapped bytes can be made unreadable.
    pub hides: bool,
    /// Whether wrapped bytes cannot be changed unseen.
    pub is_safe: bool,
    /// Whether the library detects replays.
    pub sees_replays: bool,
}

/// A context in either role, of use to one thread at a time.
pub struct KerberosContext {
    library: &'static GssLibrary,
    context: GssHandle,
    side: CredentialSide,
}

/// Credential that a side begins with.
enum CredentialSide {
    /// Keys of our service.
    Acceptor(GssHandle),
    /// Name of the other side.
    Initiator(GssHandle),
}

// SAFETY: the library's contexts, names and credentials belong to no thread. It asks only that two
// threads do not use one at once; every call here takes the context mutably.
unsafe impl Send for KerberosContext {}

impl KerberosContext {
    /// Begins to wait for a client, with the keys of a keytab. `None`: the keytab of the
    /// environment, or the machine's.
    pub fn accept(keytab: Option<&Path>) -> Result<Self, KerberosRefusal> {
        let library = library()?;
        let mechanisms = OidSet {
            count: 1,
            elements: &raw const KERBEROS,
        };
        // A path with a zero byte is none, and found to be none by the library.
        let named = keytab.map(|path| [b"FILE:", path.as_os_str().as_bytes()].concat());
        let named = named.map(|name| CString::new(name).unwrap_or_default());
        let place = KeyValue {
            key: c"keytab".as_ptr(),
            value: named.as_ref().map_or(ptr::null(), |name| name.as_ptr()),
        };
        let places = KeyValues {
            count: 1,
            elements: &raw const place,
        };
        let places = named.as_ref().map_or(ptr::null(), |_| &raw const places);
        let (mut minor, mut keys) = (0, ptr::null_mut());
        // SAFETY: all that is pointed to outlives the call, or is null where RFC 2744 takes that.
        let major = unsafe {
            (library.acquire_cred_from)(
                &mut minor,
                ptr::null_mut(),
                FOREVER,
                &raw const mechanisms,
                TO_ACCEPT,
                places,
                &mut keys,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        library.check(major, minor)?;
        Ok(Self {
            library,
            context: ptr::null_mut(),
            side: CredentialSide::Acceptor(keys),
        })
    }

    /// Begins a conversation with `NAME@HOST`, by the ticket of the environment's cache.
    pub fn initiate(target: &str) -> Result<Self, KerberosRefusal> {
        let library = library()?;
        let text = GssBuffer::of(target.as_bytes());
        let (mut minor, mut name) = (0, ptr::null_mut());
        // SAFETY: text and kind outlive the call.
        let major =
            unsafe { (library.import_name)(&mut minor, &text, &raw const OF_HOST, &mut name) };
        library.check(major, minor)?;
        Ok(Self {
            library,
            context: ptr::null_mut(),
            side: CredentialSide::Initiator(name),
        })
    }

    /// Returns the ticket cache, such as `FILE:/tmp/krb5cc_1000`; `None`: the library does not say.
    pub fn cache() -> Option<String> {
        let library = library().ok()?;
        let (mut minor, mut name) = (0, ptr::null());
        // SAFETY: without a name the cache stays as before, and the name is returned.
        let major = unsafe { (library.ccache_name)(&mut minor, ptr::null(), &mut name) };
        if major & ERRORS != 0 || name.is_null() {
            return None;
        }
        // SAFETY: it ends with a zero byte, and stays until this thread asks again.
        let name = unsafe { CStr::from_ptr(name) };
        Some(name.to_string_lossy().into_owned())
    }

    /// Takes a token of the other side; an initiator's first is empty. Must not be called after an
    /// error, or when both sides have agreed.
    pub fn step(&mut self, token: &[u8]) -> Result<Stepped, KerberosRefusal> {
        let (came, mut said) = (GssBuffer::of(token), GssBuffer::none());
        let mut minor = 0;
        let library = self.library;
        let major = match self.side {
            // SAFETY: the context is ours and no other thread's; all pointers outlive the call.
            // Without bindings here, those of the peer are ignored.
            CredentialSide::Acceptor(keys) => unsafe {
                (library.accept_sec_context)(
                    &mut minor,
                    &mut self.context,
                    keys,
                    &came,
                    ptr::null(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                    &mut said,
                    ptr::null_mut(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                )
            },
            // SAFETY: as above; without a credential it takes the default one.
            CredentialSide::Initiator(target) => unsafe {
                (library.init_sec_context)(
                    &mut minor,
                    ptr::null_mut(),
                    &mut self.context,
                    target,
                    &raw const KERBEROS,
                    WANTED,
                    0,
                    ptr::null(),
                    &came,
                    ptr::null_mut(),
                    &mut said,
                    ptr::null_mut(),
                    ptr::null_mut(),
                )
            },
        };
        let token = library.take(said);
        library.check(major, minor)?;
        let stands = major & CONTINUE == 0;
        Ok(Stepped { token, stands })
    }

    /// Returns the names at both ends of an established context.
    pub fn ends(&mut self) -> Result<KerberosNames, KerberosRefusal> {
        let library = self.library;
        let (mut minor, mut flags, mut is_open) = (0, 0, 0);
        let (mut initiator, mut acceptor) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the context is ours; null where RFC 2744 takes that, names are released below.
        let major = unsafe {
            (library.inquire_context)(
                &mut minor,
                self.context,
                &mut initiator,
                &mut acceptor,
                ptr::null_mut(),
                ptr::null_mut(),
                &mut flags,
                ptr::null_mut(),
                &mut is_open,
            )
        };
        let names = (library.text_of(initiator), library.text_of(acceptor));
        library.check(major, minor)?;
        if is_open == 0 {
            return Err(KerberosRefusal::No {
                major: NO_CONTEXT,
                minor: 0,
                said: "the context does not stand".into(),
            });
        }
        Ok(KerberosNames {
            initiator: names.0?,
            acceptor: names.1?,
            hides: flags & HIDES != 0,
            is_safe: flags & INTEGRITY != 0,
            sees_replays: flags & REPLAYS != 0,
        })
    }

    /// Protects bytes for the other side.
    pub fn wrap(&mut self, clear: &[u8], how: Wrapping) -> Result<Vec<u8>, KerberosRefusal> {
        let (came, mut wrapped) = (GssBuffer::of(clear), GssBuffer::none());
        let (mut minor, mut hidden) = (0, 0);
        let hide = c_int::from(how == Wrapping::Private);
        // SAFETY: the context is ours; all pointers outlive the call.
        let major = unsafe {
            (self.library.wrap)(
                &mut minor,
                self.context,
                hide,
                0,
                &came,
                &mut hidden,
                &mut wrapped,
            )
        };
        let wrapped = self.library.take(wrapped);
        self.library.check(major, minor)?;
        match hide == 1 && hidden == 0 {
            false => Ok(wrapped),
            true => Err(KerberosRefusal::No {
                major: 0,
                minor: 0,
                said: "this context cannot make anything unreadable".into(),
            }),
        }
    }

    /// Returns the plain bytes of a protected token.
    pub fn unwrap(&mut self, wrapped: &[u8]) -> Result<Unwrapped, KerberosRefusal> {
        // MIT's library rotates the bytes in place.
        let mut wrapped = wrapped.to_vec();
        let came = GssBuffer {
            length: wrapped.len(),
            at: wrapped.as_mut_ptr().cast(),
        };
        let mut clear = GssBuffer::none();
        let (mut minor, mut hidden) = (0, 0);
        // SAFETY: the context is ours; all pointers outlive the call.
        let major = unsafe {
            (self.library.unwrap)(
                &mut minor,
                self.context,
                &came,
                &mut clear,
                &mut hidden,
                ptr::null_mut(),
            )
        };
        let clear = self.library.take(clear);
        self.library.check(major, minor)?;
        let how = match hidden {
            0 => Wrapping::Safe,
            _ => Wrapping::Private,
        };
        Ok(Unwrapped {
            clear,
            how,
            in_turn: major == 0,
        })
    }

    /// Returns how many bytes fit into a token that is no longer than so many.
    pub fn room(&mut self, token_bytes: u32, how: Wrapping) -> Result<u32, KerberosRefusal> {
        let hide = c_int::from(how == Wrapping::Private);
        let (mut minor, mut room) = (0, 0);
        // SAFETY: the context is ours; all pointers outlive the call.
        let major = unsafe {
            (self.library.wrap_size_limit)(
                &mut minor,
                self.context,
                hide,
                0,
                token_bytes,
                &mut room,
            )
        };
        self.library.check(major, minor)?;
        Ok(room)
    }
}

impl Drop for KerberosContext {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: each is ours, or null, and no code uses it again.
        unsafe {
            (self.library.delete_sec_context)(&mut minor, &mut self.context, ptr::null_mut());
            match &mut self.side {
                CredentialSide::Acceptor(keys) => (self.library.release_cred)(&mut minor, keys),
                CredentialSide::Initiator(name) => (self.library.release_name)(&mut minor, name),
            };
        }
    }
}

impl fmt::Debug for KerberosContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KerberosContext")
    }
}

impl GssLibrary {
    /// Makes an error of a status that is one.
    fn check(&self, major: GssNumber, minor: GssNumber) -> Result<(), KerberosRefusal> {
        match major & ERRORS {
            0 => Ok(()),
            _ => Err(self.refusal(major, minor)),
        }
    }

    fn refusal(&self, major: GssNumber, minor: GssNumber) -> KerberosRefusal {
        // Kerberos may have no objection of its own, and says so under some number.
        let said = Some(self.words(minor, OF_MECHANISM)).filter(|said| minor != 0 && said != FINE);
        let said = said.unwrap_or_else(|| self.words(major, OF_GSS));
        KerberosRefusal::No {
            major,
            minor: minor.cast_signed(),
            said,
        }
    }

    /// Returns the library's message for a status.
    fn words(&self, status: GssNumber, of: c_int) -> String {
        let (mut more, mut said) = (0, Vec::new());
        for _ in 0..WORDS_MAX {
            let (mut minor, mut text) = (0, GssBuffer::none());
            // SAFETY: all pointers outlive the call.
            let major = unsafe {
                (self.display_status)(
                    &mut minor,
                    status,
                    of,
                    &raw const KERBEROS,
                    &mut more,
                    &mut text,
                )
            };
            let text = self.take(text);
            if major & ERRORS == 0 && !text.is_empty() {
                said.push(String::from_utf8_lossy(&text).into_owned());
            }
            if major & ERRORS != 0 || more == 0 {
                break;
            }
        }
        match said.is_empty() {
            true => format!("it does not say why (status {status})"),
            false => said.join("; "),
        }
    }

    /// Returns a name as text, and releases it.
    fn text_of(&self, mut name: GssHandle) -> Result<Vec<u8>, KerberosRefusal> {
        if name.is_null() {
            return Ok(Vec::new());
        }
        let (mut minor, mut text) = (0, GssBuffer::none());
        // SAFETY: the name is ours, and released once.
        let major = unsafe {
            let major = (self.display_name)(&mut minor, name, &mut text, ptr::null_mut());
            let mut unused = 0;
            (self.release_name)(&mut unused, &mut name);
            major
        };
        let text = self.take(text);
        self.check(major, minor)?;
        Ok(text)
    }

    /// Takes bytes over, and gives the library its own back.
    fn take(&self, mut bytes: GssBuffer) -> Vec<u8> {
        let taken = match bytes.at.is_null() {
            true => Vec::new(),
            // SAFETY: the library says that there are so many bytes at this address. It keeps them
            // until they are released, which is after the copy.
            false => unsafe { slice::from_raw_parts(bytes.at.cast::<u8>(), bytes.length) }.to_vec(),
        };
        let mut minor = 0;
        // SAFETY: the library made them, and they are released once.
        unsafe { (self.release_buffer)(&mut minor, &mut bytes) };
        taken
    }
}

/// RFC 2744, 3.9.1: errors of the call and of the routine; the rest is said beside a success.
const ERRORS: GssNumber = 0xffff_0000;
const CONTINUE: GssNumber = 1;
const NO_CONTEXT: GssNumber = 8 << 16;
const FOREVER: GssNumber = GssNumber::MAX;
const TO_ACCEPT: c_int = 2;
const OF_GSS: c_int = 1;
const OF_MECHANISM: c_int = 2;
const REPLAYS: GssNumber = 4;
const HIDES: GssNumber = 16;
const INTEGRITY: GssNumber = 32;
/// Both sides prove their names, and no right is delegated. The order is not checked, since lines
/// and data use different connections.
const WANTED: GssNumber = 2 | REPLAYS | HIDES | INTEGRITY;
const WORDS_MAX: usize = 4;
const FINE: &str = "Success";
