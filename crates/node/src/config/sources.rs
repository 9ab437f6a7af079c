//! Sources of values: defaults, a file, variables of the environment. An unknown key is refused, with the nearest known
//! one.

use super::{ConfigKey, ConfigValue, Error, KEYS, ValueOrigin, modules};
use std::{collections::BTreeMap, path::Path};

pub(super) fn defaults() -> BTreeMap<&'static str, ConfigValue> {
    let value = |key: &ConfigKey| ConfigValue {
        text: key.default.into(),
        origin: ValueOrigin::Default,
    };
    KEYS.iter().map(|key| (key.name, value(key))).collect()
}

/// Reads the values and the modules of a file.
pub(super) fn read_file(
    path: &Path,
    values: &mut BTreeMap<&'static str, ConfigValue>,
) -> Result<Vec<modules::ModuleText>, Error> {
    let text = std::fs::read_to_string(path).map_err(|cause| Error::Unreadable {
        path: path.into(),
        cause,
    })?;
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| Error::NotToml {
            path: path.into(),
            what: godwit_trust::not_toml(&text, &error),
        })?;
    let origin = ValueOrigin::File(path.into());
    let mut of_modules = Vec::new();
    for (section, inside) in table {
        if section == "modules" {
            of_modules = modules::read(inside, &origin)?;
            continue;
        }
        if section == "routes" {
            let text = routes(&inside);
            let origin = origin.clone();
            values.insert(known("node.routes", &origin)?, ConfigValue { text, origin });
            continue;
        }
        let toml::Value::Table(inside) = inside else {
            known(&section, &origin)?;
            continue;
        };
        for (name, value) in inside {
            let key = known(&format!("{section}.{name}"), &origin)?;
            values.insert(
                key,
                ConfigValue {
                    text: text_of(&value),
                    origin: origin.clone(),
                },
            );
        }
    }
    Ok(of_modules)
}

/// `PREFIX = URL`, as one value.
fn routes(inside: &toml::Value) -> String {
    let toml::Value::Table(inside) = inside else {
        return text_of(inside);
    };
    let each = inside.iter();
    let each = each.map(|(from, to)| format!("{from}={}", text_of(to)));
    each.collect::<Vec<_>>().join(",")
}

pub(super) fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(items) => items.iter().map(text_of).collect::<Vec<_>>().join(","),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(truth) => truth.to_string(),
        // No key takes such a value; any text will be refused.
        other => format!("{other:?}"),
    }
}

/// Returns the key of a variable: `GODWIT_LIMITS_IDLE_SECONDS` is `limits.idle_seconds`. A name close to a key is
/// refused; other variables with that beginning belong to other parts of godwit or to other programs.
pub(super) fn key_of_variable(name: &str, text: &str) -> Result<Option<&'static str>, Error> {
    let Some(rest) = name.strip_prefix(OURS).map(str::to_ascii_lowercase) else {
        return Ok(None);
    };
    let mut keys = KEYS.iter().map(|key| key.name);
    if let Some(key) = keys.find(|key| key.replace('.', "_") == rest) {
        return Ok(Some(key));
    }
    let looks_like_one = |key: &ConfigKey| {
        let section = key.name.split('.').next().unwrap_or_default();
        let below = rest.strip_prefix(section);
        below.is_some_and(|below| below.starts_with('_'))
            || distance(&key.name.replace('.', "_"), &rest) <= SLIPS_MAX
    };
    if is_of_others(name, text) || !KEYS.iter().any(looks_like_one) {
        return Ok(None);
    }
    known(
        &rest.replacen('_', ".", 1),
        &ValueOrigin::Environment(name.into()),
    )
    .map(Some)
}

/// How our variables begin.
pub(super) const OURS: &str = "GODWIT_";
/// Variables that are no keys, in lower case: see `godwit help environment`.
const OF_OTHERS: [&str; 17] = [
    "catalog",
    "config",
    "log",
    "ssh",
    "gssapi",
    "crash",
    "child",
    "socket",
    "state",
    "bin",
    "session",
    "local_idle",
    "depot_quota",
    "scrub",
    "on_fault",
    "fault_after",
    "event",
];
/// The most wrong letters that still count as a slip.
const SLIPS_MAX: usize = 3;

/// Tells whether a variable has another meaning, or was set by an orchestrator that has a service named godwit:
/// `GODWIT_NODE_SERVICE_HOST`, `GODWIT_NODE_PORT=tcp://10.0.0.1:2811`.
pub(super) fn is_of_others(name: &str, text: &str) -> bool {
    let rest = name.trim_start_matches(OURS).to_ascii_lowercase();
    let marks = ["_service_host", "_service_port", "_tcp", "_udp"];
    OF_OTHERS.contains(&&*rest)
        || marks.iter().any(|mark| rest.contains(mark))
        || text.contains("://")
}

pub(super) fn known(key: &str, origin: &ValueOrigin) -> Result<&'static str, Error> {
    let all = || KEYS.iter().map(|key| key.name);
    all()
        .find(|&name| name == key)
        .ok_or_else(|| Error::UnknownKey {
            origin: origin.clone(),
            key: key.into(),
            nearest: all()
                .min_by_key(|name| distance(name, key))
                .expect("there are keys"),
        })
}

/// Letters to insert, remove or exchange to make one word of the other.
pub(super) fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let exchanged = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
