<?php
// php.php PORT DIR: the functions ftp_* of PHP and its wrapper of ftp: URLs, an operation a line.
error_reporting(E_ALL);
$passed = 0; $failed = 0;
function check($name, $ok) { global $passed, $failed; if ($ok) { $passed++; } else { $failed++; echo "FAIL $name\n"; } }
$c = ftp_connect('127.0.0.1', (int) $argv[1], 10);
check('login', @ftp_login($c, 'anonymous', 'x@'));
check('pasv', ftp_pasv($c, true));
check('pwd', ftp_pwd($c) === '/');
check('mkdir', ftp_mkdir($c, '/php') === '/php');
check('mkdir of what exists', @ftp_mkdir($c, '/php') === false);
check('chdir', ftp_chdir($c, 'php'));
$dir = $argv[2]; $big = random_bytes(300000); file_put_contents("$dir/big", $big); file_put_contents("$dir/text", "a\nb\n");
check('put', ftp_put($c, 'big', "$dir/big", FTP_BINARY));
check('size', ftp_size($c, 'big') === 300000);
check('get', ftp_get($c, "$dir/back", 'big', FTP_BINARY) && file_get_contents("$dir/back") === $big);
check('get from', (function () use ($c, $dir, $big) { file_put_contents("$dir/rest", substr($big, 0, 1000)); return ftp_get($c, "$dir/rest", 'big', FTP_BINARY, 1000) && file_get_contents("$dir/rest") === $big; })());
check('append', ftp_append($c, 'big', "$dir/text", FTP_BINARY) && ftp_size($c, 'big') === 300004);
check('put text', ftp_put($c, 'text', "$dir/text", FTP_ASCII) && ftp_size($c, 'text') === 4);
check('get text', ftp_get($c, "$dir/textback", 'text', FTP_ASCII) && file_get_contents("$dir/textback") === "a\nb\n");
check('chmod', ftp_chmod($c, 0640, 'big') === 0640);
check('mdtm', abs(ftp_mdtm($c, 'big') - time()) < 60);
check('nlist', (function () use ($c) { $l = ftp_nlist($c, '.'); sort($l); return $l === ['big', 'text']; })());
check('mlsd', (function () use ($c) { $l = array_column(array_map('array_change_key_case', ftp_mlsd($c, '.')), 'type', 'name'); return $l['big'] === 'file'; })());
check('rawlist', count(ftp_rawlist($c, '.')) === 2);
check('systype', ftp_systype($c) === 'UNIX');
check('site', ftp_site($c, 'HELP'));
check('rename', ftp_rename($c, 'big', 'large'));
check('nb_put', (function () use ($c, $dir) { $r = ftp_nb_put($c, 'nb', "$dir/big", FTP_BINARY); while ($r === FTP_MOREDATA) { $r = ftp_nb_continue($c); } return $r === FTP_FINISHED && ftp_size($c, 'nb') === 300000; })());
check('fput', (function () use ($c) { $f = fopen('php://memory', 'w+'); fwrite($f, 'hello'); rewind($f); return ftp_fput($c, 'h', $f, FTP_BINARY); })());
check('active', ftp_pasv($c, false) && ftp_get($c, "$dir/h", 'h', FTP_BINARY) && file_get_contents("$dir/h") === 'hello');
foreach (['large', 'text', 'nb', 'h'] as $name) { check("delete $name", ftp_delete($c, $name)); }
check('delete of nothing', @ftp_delete($c, 'none') === false);
check('cdup', ftp_cdup($c));
check('rmdir', ftp_rmdir($c, 'php'));
check('close', ftp_close($c));
$url = "ftp://anonymous:x@127.0.0.1:$argv[1]/wrapped";
check('wrapper put', file_put_contents($url, 'hello') === 5);
check('wrapper get', file_get_contents($url) === 'hello');
check('wrapper stat', filesize($url) === 5);
check('wrapper unlink', unlink($url));
echo "passed $passed failed $failed\n";
