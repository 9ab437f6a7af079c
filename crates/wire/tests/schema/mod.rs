//! As much of JSON Schema (2020-12) as the description of the door uses. An unknown keyword is a fault of the
//! description: no check would enforce it.

use regex_automata::{
    Input,
    dfa::{Automaton, dense::DFA},
};
use serde_json::{Map, Value};

/// The description that schemas refer to.
#[derive(Clone, Copy)]
pub struct Schemas<'a>(pub &'a Value);

impl<'a> Schemas<'a> {
    /// Returns the target of a reference, or the value itself.
    pub fn follow(self, value: &'a Value) -> &'a Value {
        match value.get("$ref") {
            Some(Value::String(to)) => {
                let path = to
                    .strip_prefix('#')
                    .expect("references are within the file");
                let found = self
                    .0
                    .pointer(path)
                    .unwrap_or_else(|| panic!("{to} is nowhere"));
                self.follow(found)
            }
            _ => value,
        }
    }

    /// Returns the schema of that name.
    pub fn named(self, name: &str) -> &'a Value {
        let path = format!("/components/schemas/{name}");
        self.0
            .pointer(&path)
            .unwrap_or_else(|| panic!("{name} is not described"))
    }

    /// Returns why a value breaks a schema. A member that no schema describes is a fault here, although readers of
    /// answers ignore it.
    pub fn check(self, schema: &'a Value, value: &Value) -> Result<(), String> {
        let schema = self
            .follow(schema)
            .as_object()
            .expect("a schema is an object");
        for (keyword, said) in schema {
            let kept = match keyword.as_str() {
                "description" | "properties" | "prefixItems" => Ok(()),
                "type" => check_type(said, value),
                "enum" => check_one(said, value),
                "minimum" | "maximum" => bound(keyword, said, value),
                "minItems" | "maxItems" => length(keyword, said, value),
                "pattern" => fits(said, value),
                "oneOf" => self.one_of(said, value),
                "required" => check_all(said, value),
                "additionalProperties" => self.rest(schema, said, value),
                "items" => self.items(schema, said, value),
                unknown => panic!("keyword {unknown} of a schema is not checked"),
            };
            kept.map_err(|why| format!("{why} in {value}"))?;
        }
        self.members(schema, value)
    }

    fn one_of(self, of: &'a Value, value: &Value) -> Result<(), String> {
        let of = of.as_array().expect("oneOf is a list");
        let wrong: Vec<String> = of
            .iter()
            .filter_map(|schema| self.check(schema, value).err())
            .collect();
        match of.len() - wrong.len() {
            1 => Ok(()),
            0 => Err(format!("none fits: {}", wrong.join("; "))),
            count => Err(format!("{count} fit")),
        }
    }

    fn members(self, schema: &'a Map<String, Value>, value: &Value) -> Result<(), String> {
        let (Some(members), Some(known)) = (value.as_object(), schema.get("properties")) else {
            return Ok(());
        };
        for (name, member) in members {
            match known.get(name) {
                Some(schema) => self.check(schema, member)?,
                None => return Err(format!("{name} is not described")),
            }
        }
        Ok(())
    }

    fn rest(self, schema: &Map<String, Value>, said: &Value, value: &Value) -> Result<(), String> {
        assert_eq!(
            said,
            &Value::Bool(false),
            "additionalProperties are forbidden or not spoken of"
        );
        let known = schema
            .get("properties")
            .expect("who forbids others has some");
        let mut names = value.as_object().into_iter().flat_map(Map::keys);
        match names.find(|name| known.get(name).is_none()) {
            Some(name) => Err(format!("{name} is not known")),
            None => Ok(()),
        }
    }

    fn items(
        self,
        schema: &'a Map<String, Value>,
        said: &'a Value,
        value: &Value,
    ) -> Result<(), String> {
        let first = schema.get("prefixItems").and_then(Value::as_array);
        let first = first.map_or(&[][..], Vec::as_slice);
        for (nth, item) in value.as_array().into_iter().flatten().enumerate() {
            match (first.get(nth), said) {
                (Some(schema), _) => self.check(schema, item)?,
                (None, Value::Bool(false)) => return Err(format!("there are more than {nth}")),
                (None, said) => self.check(said, item)?,
            }
        }
        Ok(())
    }
}

fn check_type(said: &Value, value: &Value) -> Result<(), String> {
    let is_it = match said.as_str().expect("one type is named") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("type {other}"),
    };
    is_it
        .then_some(())
        .ok_or_else(|| format!("{said} is wanted"))
}

fn check_one(said: &Value, value: &Value) -> Result<(), String> {
    let of = said.as_array().expect("enum is a list");
    of.contains(value)
        .then_some(())
        .ok_or_else(|| format!("one of {said} is wanted"))
}

fn bound(keyword: &str, said: &Value, value: &Value) -> Result<(), String> {
    let bound = said.as_u64().expect("a bound is a number");
    let is_within = match (keyword, value.as_u64()) {
        _ if !value.is_number() => true,
        ("minimum", number) => number.is_some_and(|number| number >= bound),
        (_, number) => number.is_some_and(|number| number <= bound),
    };
    is_within
        .then_some(())
        .ok_or_else(|| format!("{keyword} is {bound}"))
}

fn length(keyword: &str, said: &Value, value: &Value) -> Result<(), String> {
    let bound = said.as_u64().expect("a bound is a number") as usize;
    let Some(items) = value.as_array() else {
        return Ok(());
    };
    let is_within = if keyword == "minItems" {
        items.len() >= bound
    } else {
        items.len() <= bound
    };
    is_within
        .then_some(())
        .ok_or_else(|| format!("{keyword} is {bound}"))
}

fn fits(said: &Value, value: &Value) -> Result<(), String> {
    let pattern = said.as_str().expect("a pattern is text");
    let Some(text) = value.as_str() else {
        return Ok(());
    };
    let dfa = DFA::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    let found = dfa
        .try_search_fwd(&Input::new(text))
        .expect("patterns are simple");
    found
        .map(|_| ())
        .ok_or_else(|| format!("it does not fit {pattern}"))
}

fn check_all(said: &Value, value: &Value) -> Result<(), String> {
    let Some(members) = value.as_object() else {
        return Ok(());
    };
    let mut names = said.as_array().expect("required is a list").iter();
    match names.find(|name| !members.contains_key(name.as_str().expect("names are text"))) {
        Some(name) => Err(format!("{name} is missing")),
        None => Ok(()),
    }
}
