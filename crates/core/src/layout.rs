//! Layouts.
#![allow(missing_docs)]

#[derive(Debug)]
pub struct Fragment;
#[derive(Debug)]
pub struct Home;
#[derive(Debug)]
pub struct HomeState;
#[derive(Debug)]
pub struct Layout;
#[derive(Debug)]
pub struct Move;
#[derive(Debug)]
pub struct Weather;
pub fn choose() {}
pub fn moves() {}
