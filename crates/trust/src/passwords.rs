//! Logins by a password or a token, for clients that have nothing else (RFC 4217). They are listed
//! in a file that has neither passwords nor tokens.
//!
//! A line is `NAME password scrypt:LOG_N:R:P:SALT:HASH` or `NAME token sha256:HASH`, bytes as hex;
//! `#` begins a remark. A password is short and can be guessed, so a guess must be expensive (RFC
//! 7914). A token is 256 random bits, so one SHA-256 will do.

use crate::{Error, Identity, Result, credential::read_key, error::Doing, kept::FileCache};
use godwit_core::hex;
use openssl::{error::ErrorStack, memcmp, pkcs5::scrypt, rand::rand_bytes, sha::sha256};
use std::{
    collections::HashMap,
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

/// Passwords and tokens of all users. Each question checks whether the file has changed. Cheap to
/// clone.
#[derive(Clone)]
pub struct Passwords(Arc<PasswordFile>);

struct PasswordFile {
    people: FileCache<People>,
    /// Hashing takes a while and 32 MiB: one at a time, so that attackers cannot use up the
    /// machine.
    hashing: Mutex<()>,
}

#[derive(Debug, Default)]
struct People {
    passwords: HashMap<String, PasswordHash>,
    tokens: Vec<(String, [u8; HASH_BYTES])>,
}

/// A password, as it is kept.
#[derive(Clone, Copy)]
struct PasswordHash {
    cost: HashingCost,
    salt: [u8; SALT_BYTES],
    hash: [u8; HASH_BYTES],
}

/// Cost of hashing: memory is 128 · 2^log_n · r bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct HashingCost {
    log_n: u32,
    r: u64,
    p: u64,
}

impl Passwords {
    /// Reads a file, which must be ours alone; a line that is not understood is an error
    /// that names it.
    pub fn read(path: &Path) -> Result<Self> {
        let passwords = Self(Arc::new(PasswordFile {
            people: FileCache::of(path),
            hashing: Mutex::default(),
        }));
        passwords.current()?;
        Ok(passwords)
    }

    /// Returns the user of this name and this password or token; `None`: no user that the file
    /// lists. With a token the name may be `token` instead of the user's own.
    ///
    /// A wrong password takes as long as the right one, for an unknown user too.
    pub fn who(&self, name: &str, secret: &[u8]) -> Result<Option<String>> {
        let people = self.current()?;
        if secret.is_empty() || secret.len() > SECRET_BYTES_MAX {
            return Ok(None);
        }
        if let Some(owner) = people.owner_of(name, secret) {
            return Ok(Some(owner.into()));
        }
        let known = people.passwords.get(name);
        let kept = known.copied().unwrap_or_else(|| people.nobody());
        let hash = {
            let _alone = self
                .0
                .hashing
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            kept.cost.hash(secret, &kept.salt).doing(HASHING)?
        };
        let is_same = memcmp::eq(&hash, &kept.hash);
        Ok((is_same && known.is_some()).then(|| name.into()))
    }

    /// Returns the file.
    pub fn path(&self) -> &Path {
        self.0.people.path()
    }

    fn current(&self) -> Result<Arc<People>> {
        self.0.people.now(read_key, People::parse)
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Passwords")
            .field(&self.0.people.path())
            .finish()
    }
}

impl Identity {
    /// Returns the identity of a user who logged in by a password or a token:
    /// `/O=godwit/OU=password/CN=NAME`.
    pub fn by_password(name: &str) -> Self {
        Self::named(format!("/O=godwit/OU=password/CN={name}"))
    }
}

/// Returns the line for a person and their password.
pub fn password_line(name: &str, password: &[u8]) -> Result<String> {
    check_name(name)?;
    if password.is_empty() || password.len() > SECRET_BYTES_MAX {
        return Err(Error::bad_request(format!(
            "a password has 1 to {SECRET_BYTES_MAX} bytes"
        )));
    }
    if password
        .iter()
        .any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
    {
        let what = "a password that FTP can carry has no line end and no zero byte";
        return Err(Error::bad_request(what));
    }
    let mut salt = [0; SALT_BYTES];
    rand_bytes(&mut salt).doing(HASHING)?;
    let cost = HashingCost::USUAL;
    let hash = cost.hash(password, &salt).doing(HASHING)?;
    let HashingCost { log_n, r, p } = cost;
    let (salt, hash) = (hex(&salt), hex(&hash));
    Ok(format!(
        "{name} password scrypt:{log_n}:{r}:{p}:{salt}:{hash}"
    ))
}

/// Returns a new token for a person, and the line for it.
pub fn new_token(name: &str) -> Result<(String, String)> {
    check_name(name)?;
    let mut secret = [0; HASH_BYTES];
    rand_bytes(&mut secret).doing("making a token")?;
    let token = format!("{TOKEN_MARK}{}", hex(&secret));
    let hash = hex(&sha256(token.as_bytes()));
    Ok((token, format!("{name} token sha256:{hash}")))
}

/// Returns a random name of 32 hexadecimal digits, which cannot be guessed.
pub fn unguessable() -> Result<String> {
    let mut bytes = [0; 16];
    rand_bytes(&mut bytes).doing("making a name that nobody can guess")?;
    Ok(hex(&bytes))
}

impl People {
    fn parse(text: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(text).map_err(|_| "is not text")?;
        let mut people = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                // The line itself is not repeated: it may have secrets.
                let added = people.add(line);
                added.map_err(|what| format!("line {}: {what}", number + 1))?;
            }
        }
        Ok(people)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, kind, kept] = words[..] else {
            return Err("is not NAME password HASH or NAME token HASH".into());
        };
        check_name(name).map_err(|error| error.to_string())?;
        match kind {
            "password" => {
                let hashed = PasswordHash::parse(kept).ok_or("no scrypt hash that may be used")?;
                match self.passwords.insert(name.into(), hashed) {
                    Some(_) => Err(format!("{name} has a password already")),
                    None => Ok(()),
                }
            }
            "token" => {
                let hash = kept.strip_prefix("sha256:").and_then(unhex);
                self.tokens
                    .push((name.into(), hash.ok_or("no SHA-256 hash")?));
                Ok(())
            }
            other => Err(format!("{other:?} is neither password nor token")),
        }
    }

    /// All are compared, whichever is the right one.
    fn owner_of(&self, name: &str, token: &[u8]) -> Option<&str> {
        let hash = sha256(token);
        let mut owner = None;
        for (whose, kept) in &self.tokens {
            let is_meant = name == ANY_TOKEN || name == whose;
            if memcmp::eq(&hash, kept) && is_meant {
                owner = Some(whose.as_str());
            }
        }
        owner
    }

    /// Returns the hash to compare with for a user without a password.
    fn nobody(&self) -> PasswordHash {
        let some = self.passwords.values().next();
        PasswordHash {
            cost: some.map_or(HashingCost::USUAL, |hashed| hashed.cost),
            salt: [0; SALT_BYTES],
            hash: [0; HASH_BYTES],
        }
    }
}

impl PasswordHash {
    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split(':').collect();
        let ["scrypt", log_n, r, p, salt, hash] = parts[..] else {
            return None;
        };
        let cost = HashingCost {
            log_n: log_n.parse().ok()?,
            r: r.parse().ok()?,
            p: p.parse().ok()?,
        };
        cost.is_bearable().then_some(())?;
        Some(Self {
            cost,
            salt: unhex(salt)?,
            hash: unhex(hash)?,
        })
    }
}

/// Shows the cost only, never the hash.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cost.fmt(f)
    }
}

impl HashingCost {
    /// A tenth of a second, 32 MiB.
    const USUAL: Self = Self {
        log_n: 15,
        r: 8,
        p: 1,
    };

    fn is_bearable(self) -> bool {
        let is_sane = (1..=20).contains(&self.log_n) && (1..=32).contains(&self.r);
        is_sane && (1..=16).contains(&self.p) && (self.r << (7 + self.log_n)) <= MEMORY_BYTES_MAX
    }

    fn hash(self, secret: &[u8], salt: &[u8]) -> Result<[u8; HASH_BYTES], ErrorStack> {
        let mut hash = [0; HASH_BYTES];
        let n = 1 << self.log_n;
        scrypt(
            secret,
            salt,
            n,
            self.r,
            self.p,
            2 * MEMORY_BYTES_MAX,
            &mut hash,
        )?;
        Ok(hash)
    }
}

/// A name is used in subjects, in logs and perhaps in the machine's own accounts.
fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    let is_good = (1..=64).contains(&name.len()) && name.bytes().all(is_plain);
    let is_taken = ["anonymous", "ftp", ANY_TOKEN].contains(&name);
    match is_good && !is_taken {
        true => Ok(()),
        false => Err(Error::bad_request(format!(
            "{name:?} cannot be a name here: letters, digits and . _ - @, and not anonymous, ftp or token"
        ))),
    }
}

fn unhex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    godwit_core::unhex(digits)?.try_into().ok()
}

const HASHING: &str = "hashing a password";
/// Name for a login by any token: the token names the user.
const ANY_TOKEN: &str = "token";
/// Mark by which users and programs that look for leaked secrets recognize a token.
const TOKEN_MARK: &str = "godwit-";
const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;
const SECRET_BYTES_MAX: usize = 1024;
const MEMORY_BYTES_MAX: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Write, os::unix::fs::OpenOptionsExt, path::PathBuf};

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("passwords");
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).mode(0o600);
        file = file.truncate(true);
        file.open(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        (dir, path)
    }

    /// A hash that is found in no time.
    fn cheap(name: &str, password: &str) -> String {
        let cost = HashingCost {
            log_n: 2,
            r: 1,
            p: 1,
        };
        let salt = [7; SALT_BYTES];
        let hash = cost.hash(password.as_bytes(), &salt).unwrap();
        format!(
            "{name} password scrypt:2:1:1:{}:{}\n",
            hex(&salt),
            hex(&hash)
        )
    }

    #[test]
    fn password_matches_its_line() {
        let line = password_line("alice", b"open sesame").unwrap();
        assert!(!line.contains("sesame"), "{line}");
        let (_dir, path) = file(&line);
        let passwords = Passwords::read(&path).unwrap();
        let who = |name: &str, secret: &[u8]| passwords.who(name, secret).unwrap();
        assert_eq!(who("alice", b"open sesame"), Some("alice".into()));
        for (name, secret) in [
            ("alice", &b"open sesam"[..]),
            ("alice", b""),
            ("bob", b"open sesame"),
            ("token", b"open sesame"),
        ] {
            assert_eq!(who(name, secret), None, "{name}");
        }
    }

    #[test]
    fn token_belongs_to_its_owner_only() {
        let (token, line) = new_token("alice").unwrap();
        assert!(!line.contains(&token));
        let (_dir, path) = file(&format!("# people\n{line} # laptop\n{}", cheap("bob", "b")));
        let passwords = Passwords::read(&path).unwrap();
        let who = |name: &str| passwords.who(name, token.as_bytes()).unwrap();
        assert_eq!(who("token"), Some("alice".into()));
        assert_eq!(who("alice"), Some("alice".into()));
        assert_eq!(who("bob"), None);
        assert_ne!(new_token("alice").unwrap().0, token);
    }

    #[test]
    fn a_file_that_changed_counts_at_once() {
        let (_dir, path) = file(&cheap("alice", "one"));
        let passwords = Passwords::read(&path).unwrap();
        assert!(passwords.who("alice", b"one").unwrap().is_some());
        fs::write(&path, cheap("alice", "another")).unwrap();
        assert!(passwords.who("alice", b"one").unwrap().is_none());
        assert!(passwords.who("alice", b"another").unwrap().is_some());
        fs::write(&path, "alice password plain\n").unwrap();
        assert!(passwords.who("alice", b"another").is_err());
    }

    #[test]
    fn bad_line_is_named_by_number_only() {
        for (bad, why) in [
            ("alice secret", "is not NAME password HASH"),
            ("alice password secret", "no scrypt hash"),
            ("alice password scrypt:63:8:1:00:00", "no scrypt hash"),
            ("alice token sha256:secret", "no SHA-256"),
            ("a/b password secret", "cannot be a name"),
            ("token token secret", "cannot be a name"),
            ("alice key secret", "neither password nor token"),
        ] {
            let (_dir, path) = file(&format!("# one\n{bad}\n"));
            let error = Passwords::read(&path).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains(why), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let (_dir, path) = file(&[cheap("a", "x"), cheap("a", "y")].concat());
        let error = Passwords::read(&path).unwrap_err().to_string();
        assert!(error.contains("already"), "{error}");
    }

    #[test]
    fn password_file_readable_by_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let (_dir, path) = file(&cheap("alice", "one"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = Passwords::read(&path).unwrap_err();
        assert!(matches!(error, Error::Exposed { .. }), "{error}");
    }

    #[test]
    fn unspeakable_names_and_passwords_are_refused() {
        for name in ["", "anonymous", "ftp", "token", "a b", "a/b", "é"] {
            assert!(password_line(name, b"x").is_err(), "{name}");
            assert!(new_token(name).is_err(), "{name}");
        }
        for password in [&b""[..], b"a\r\nb", &[b'x'; SECRET_BYTES_MAX + 1]] {
            assert!(password_line("alice", password).is_err());
        }
    }

    #[test]
    fn unknown_user_takes_as_long() {
        let people = People::parse(cheap("alice", "one").as_bytes()).unwrap();
        assert_eq!(people.nobody().cost, people.passwords["alice"].cost);
        assert_eq!(People::default().nobody().cost, HashingCost::USUAL);
    }
}
