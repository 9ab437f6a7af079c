//! A laboratory: an authority, and nodes with doors.

use super::{Scratch, Served};
use godwit_core::Url;
use godwit_store::{RemoteOptions, TrustOptions, channel::Cancel, door::Door};
use godwit_trust::{
    Authorities, Credential, KeyKind,
    lab::{Ca, Issue, write_pair},
};
use std::time::Duration;

/// An authority, and a node whose host it vouches for.
pub struct Lab {
    pub scratch: Scratch,
    pub ca: Ca,
}

impl Lab {
    pub fn new() -> Self {
        let scratch = Scratch::new();
        let day = Duration::from_secs(86_400);
        let at = scratch.path().join("ca");
        let key = KeyKind::Elliptic; // which are there at once
        let ca = Ca::init(&at, "/O=Lab/CN=Lab CA", day, key).unwrap();
        let host = Issue {
            key,
            ..Issue::host(&["localhost", "127.0.0.1"])
        };
        let host = ca.issue(&host).unwrap();
        let lab = Self { scratch, ca };
        write_pair(&host, &lab.path("host.pem"), &lab.path("hostkey.pem")).unwrap();
        lab
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.scratch.path().join(name)
    }

    pub fn node(&self, settings: &[(&'static str, &str)]) -> Served {
        self.node_over(Scratch::new(), settings)
    }

    /// That serves this directory.
    pub fn node_over(&self, export: Scratch, settings: &[(&'static str, &str)]) -> Served {
        let text = |name: &str| self.path(name).display().to_string();
        let (cert, key) = (text("host.pem"), text("hostkey.pem"));
        let authorities = self.ca.certificates().display().to_string();
        let mut all = vec![
            ("https.listen", "127.0.0.1:0"),
            ("trust.certificate", &*cert),
            ("trust.key", &*key),
            ("trust.authorities", &*authorities),
        ];
        all.extend(settings);
        Served::over(export, &all)
    }

    /// Returns a client without a name.
    pub fn anonymous(&self, served: &Served) -> Door {
        self.client_of(served, Credential::nobody())
    }

    pub fn client_of(&self, served: &Served, credential: Credential) -> Door {
        let port = served.node().addresses().https[0].port();
        self.door(port, credential, &|_| ())
    }

    /// Returns a client of the door at a port.
    pub fn door(
        &self,
        port: u16,
        credential: Credential,
        set: &dyn Fn(&mut RemoteOptions),
    ) -> Door {
        let url: Url = format!("godwit://localhost:{port}/").parse().unwrap();
        let mut options = RemoteOptions {
            trust: TrustOptions {
                credential: Some(credential),
                authorities: Some(Authorities::in_dir(&self.ca.certificates()).unwrap()),
                ..TrustOptions::default()
            },
            ..RemoteOptions::new(Cancel::new().unwrap())
        };
        set(&mut options);
        Door::open(&url, &options).unwrap()
    }
}
